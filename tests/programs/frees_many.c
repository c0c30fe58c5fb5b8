// Lines that free more blocks than memwatch counts in 5 ms, and small ones among them.
#include <stdlib.h>

#define BLOCKS 40000
static void *blocks[BLOCKS];

static void make(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(100 + i % 200);
}

static void drop(int step) {
    for (int i = 0; i < BLOCKS; i += step) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

int main(void) {
    void *a = malloc(40);
    make();
    drop(2);
    void *b = malloc(40);
    free(a);
    make();
    free(b);
    return 0;
}
