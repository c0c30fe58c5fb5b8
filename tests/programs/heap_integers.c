/* Loses blocks, and keeps integers that are no pointers: of 47 bits and doubles where the heap lies above 4 GiB; below
 * (-no-pie), numbers that lie inside the lost blocks. Prints what it lost, as malloc counts it, and waits.
 *   heap_integers COUNT */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 120, NUMBERS = 200000 };
uint64_t *numbers; /* not static: the compiler would leave out what nobody reads */
char **kept; /* pointers, to the middle of each block, too */

static uint64_t random_number(void) {
    static uint64_t state = 88172645463325252;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void *make(size_t size, int byte) { return memset(malloc(size), byte, size); }

static void __attribute__((noinline)) lose(int count, long *bytes) {
    for (int i = 0; i < count; i++) {
        char *block = make(SIZE, 0x55);
        *bytes += malloc_usable_size(block) + sizeof(size_t);
        if ((uintptr_t)block >> 32 == 0) numbers[7 * i] = (uintptr_t)block + 17 + i % 90;
    }
}

static void __attribute__((noinline)) wipe(void) {
    volatile char stack[65536];
    memset((void *)stack, 0, sizeof stack);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    long bytes = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    numbers = make(NUMBERS * sizeof *numbers, 0);
    int is_low = (uintptr_t)sbrk(0) >> 32 == 0;
    for (int i = 0; i < NUMBERS; i++) {
        double real = random_number() / 3.0;
        numbers[i] = is_low ? i : random_number() >> 17;
        if (!is_low && i % 2) memcpy(&numbers[i], &real, sizeof real);
    }
    lose(count, &bytes);
    wipe();
    kept = make(count * sizeof *kept, 0);
    for (int i = 0; i < count; i++) kept[i] = make(SIZE, 0);
    for (int i = 0; i < count; i++) *(char **)kept[i] = (char *)make(SIZE, 0) + 24; /* in a place that is usual */
    printf("low %d\nlost %d %ld\npid %d\nready\n", is_low, count, bytes, getpid());
    char line[8];
    while (read(0, line, sizeof line) > 0)
        ;
    _exit(0);
}
