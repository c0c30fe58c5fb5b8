/* COUNT live blocks of 24 to 223 bytes (or of SIZE), every fourth freed; then waits.  many_blocks COUNT [SIZE] */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1000000, size = argc > 2 ? atol(argv[2]) : 0;
    unsigned seed = 7;
    char **last = NULL;
    char line[4];
    for (long i = 0; i < count; i++) {
        seed = seed * 1103515245u + 12345u;
        char **block = malloc(size ? size : 24 + (seed >> 16) % 200);
        *block = (char *)last;
        if (i % 4 == 3) { /* the one before */
            char **gone = last;
            *block = *gone;
            free(gone);
        }
        last = block;
    }
    printf("pid %d\nready\n", getpid());
    fflush(stdout);
    return read(0, line, 1) < 0;
}
