// heap_pieces KIND: a heap in several pieces, with blocks freed at their ends; prints what is live, says "ready",
// and waits. KIND is sbrk (memory of the program's own between pieces of the main arena), heaps (a thread's
// arena that has outgrown its first heaps), blocked (the break can't grow any more: malloc goes on by mmap), or
// mapped (nothing: for a malloc that a tunable keeps from the break).
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long live, bytes;
static char *blocks[6000];
static char output[4096];

static void fill(int count, size_t least, size_t most) {
    static unsigned seed = 7;
    for (int i = 0; i < count; i++) {
        seed = seed * 1103515245u + 12345u;
        blocks[i] = malloc(least + (seed >> 12) % (most - least));
        live++;
        bytes += malloc_usable_size(blocks[i]);
    }
    for (int i = 0; i < count; i++) {
        if (i % 3 == 0 && i < count - 3) continue; // the last ones go: the piece ends with free memory
        live--;
        bytes -= malloc_usable_size(blocks[i]);
        free(blocks[i]);
    }
}

static void *grow(void *unused) {
    for (int i = 0; i < 6; i++) fill(1500, 60000, 120000);
    return unused;
}

static void *grow_and_stay(void *unused) {
    grow(unused);
    printf("live %ld %ld\nready\n", bytes, live);
    pause();
    return unused;
}

int main(int count, char **words) {
    setvbuf(stdout, output, _IOLBF, sizeof output);
    pthread_t thread;
    if (count > 1 && strcmp(words[1], "heaps") == 0) {
        pthread_create(&thread, NULL, grow_and_stay, NULL);
        pause();
    }
    for (int piece = 0; piece < 4; piece++) {
        fill(3000, 8, 2000);
        if (count > 1 && strcmp(words[1], "sbrk") == 0) sbrk(5000 + 3 * piece);
        if (count > 1 && strcmp(words[1], "blocked") == 0)
            mmap((void *)(((size_t)sbrk(0) + 4095) & -4096), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    printf("live %ld %ld\nready\n", bytes, live);
    pause();
    return 0;
}
