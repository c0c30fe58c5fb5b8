/* Holds 5,000,000 bytes; built with -DNEW, a function in front moves all others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *kept[500];
static int count;

#ifdef NEW
static int extra(int limit) {
    int sum = 0;
    for (int i = 0; i < limit; i++) sum += i * limit;
    printf("%d\n", sum);
    return sum;
}
#endif

static void cache_session(void) {
    kept[count] = malloc(10000);
    memset(kept[count++], 1, 10000);
}

int main(void) {
#ifdef NEW
    extra(3);
#endif
    for (int i = 0; i < 500; i++) cache_session();
    return 0;
}
