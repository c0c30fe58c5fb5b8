/* Two functions that gcc -O2 folds into one (-fipa-icf), called 5 and 10 times, and one with an alias. */
#include <stdio.h>
#include <stdlib.h>

static volatile int rounds = 5;
static char *volatile kept;

static __attribute__((noinline)) int inner(int n)
{
    free(kept);
    kept = malloc(50 + n);
    return n * 3;
}

static __attribute__((noinline)) int outer(int n)
{
    free(kept);
    kept = malloc(50 + n);
    return n * 3;
}

__attribute__((noinline)) int real(int n)
{
    kept = realloc(kept, 60 + n);
    return n;
}

int also(int n) __attribute__((alias("real")));

int main(void)
{
    int sum = 0;
    for (int i = 0; i < rounds; i++) {
        sum += inner(i) + outer(i) + outer(i + 1) + real(i);
        if (also(i)) {
            sum++;
        }
    }
    printf("%d\n", sum);
    return 0;
}
