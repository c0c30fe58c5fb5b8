/* Overwrites one word of malloc's in a heap with blocks of each kind, says which block that is of, then waits.
 *   heap_damaged MODE [FURTHER]: so many blocks are freed into a fastbin after the one that is hit */
// flags: -pthread -O0
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IS(name) (strcmp(mode, name) == 0)
#define HEAD(block) (((size_t *)(block))[-1])
#define AFTER(block) ((size_t *)((char *)(block) - 16 + (HEAD(block) & ~7ul)))
enum { COUNT = 1000 };
static char *live[COUNT], *large[20], *small[24], *fast[20], *cached[7], *theirs[100];
static pthread_barrier_t there;

static void *fill(void *unused) {
    for (int i = 0; i < 100; i++) memset(theirs[i] = malloc(100), 0x55, 100);
    pthread_barrier_wait(&there);
    for (;;) pause();
    return unused;
}

static void wall(void) { memset(malloc(40), 0x55, 40); }

static void damaged(const void *block) { printf("damaged %p\n", (char *)block - 16); }

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    pthread_t id;
    int more = argc > 2 ? atoi(argv[2]) : 0;
    char **further = malloc((more + 1) * sizeof *further);
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_barrier_init(&there, NULL, 2);
    pthread_create(&id, NULL, fill, NULL);
    pthread_barrier_wait(&there);
    for (int i = 0; i < COUNT; i++) memset(live[i] = malloc(100), 0x55, 100);
    for (int i = 0; i < 20; i++) memset(large[i] = malloc(2000 + 64 * (i / 2)), 0x55, 2000), wall();
    for (int i = 0; i < 24; i++) memset(small[i] = malloc(600), 0x55, 600), wall();
    for (int i = 0; i < 20; i++) fast[i] = malloc(24);
    for (int i = 0; i < more; i++) further[i] = malloc(24);
    for (int i = 0; i < 7; i++) cached[i] = malloc(300), wall();
    wall();
    for (int i = 0; i < 20; i += 2) free(large[i]);
    for (int i = 0; i < 24; i++) free(small[i]); /* tcaches hold 7 of a size, 16 from glibc 2.42 on */
    memset(malloc(5000), 0x55, 5000); /* sorts what was freed into bins */
    wall();
    for (int i = 0; i < 20; i++) free(fast[i]);
    for (int i = 0; i < more; i++) free(further[i]);
    for (int i = 0; i < 5; i++) free(cached[i]);
    void *first = live[COUNT / 2], *freed = large[10];
    size_t *links = freed;
    damaged(IS("overflow") || IS("zeros") ? AFTER(first) + 2
            : IS("foot") || IS("prev-inuse-set") || strstr(mode, "fd") == mode || strstr(mode, "bk") == mode || IS("free-size")
                ? freed
            : strstr(mode, "tcache") == mode ? (IS("tcache-entry") ? (char *)0 + 16 : cached[2])
            : strstr(mode, "fastbin") == mode ? fast[15]
            : IS("other-arena") ? theirs[50]
            : IS("small-bk") ? small[20]
                                : first);
    if (strncmp(mode, "size-", 5) == 0) HEAD(first) = strtoul(mode + 5, NULL, 16);
    else if (IS("prev-inuse")) HEAD(first) &= ~1ul;
    else if (IS("arena")) HEAD(first) |= 4;
    else if (IS("mmapped")) HEAD(first) |= 2;
    else if (IS("other-arena")) HEAD(theirs[50]) &= ~4ul;
    else if (IS("overflow")) memset((char *)first + malloc_usable_size(first), 'A', 32);
    else if (IS("zeros")) memset((char *)first + malloc_usable_size(first), 0, 32);
    else if (IS("foot")) *AFTER(freed) = 0x40;
    else if (IS("prev-inuse-set")) AFTER(freed)[1] |= 1;
    else if (IS("free-size")) HEAD(freed) += 0x40;
    else if (IS("fd-wild")) links[0] = 0x4141414141414141;
    else if (IS("fd-live")) links[0] = (size_t)first - 16;
    else if (IS("fd-zero")) links[0] = 0;
    else if (IS("bk-wild")) links[1] = 0x4141414141414141;
    else if (IS("small-bk")) ((size_t *)small[20])[1] ^= 0x40;
    else if (IS("fd-next-size")) links[2] = 0x4141414141414141;
    else if (IS("tcache-link")) *(size_t *)cached[2] = 0x4141414141414141;
    else if (IS("tcache-circle")) *(size_t *)cached[2] = ((size_t)cached[2] >> 12) ^ (size_t)cached[2];
    else if (IS("tcache-size")) HEAD(cached[2]) = 0x271;
    else if (IS("fastbin-link")) *(size_t *)fast[15] = 0x4141414141414141;
    else if (IS("fastbin-circle")) *(size_t *)fast[15] = ((size_t)fast[15] >> 12) ^ ((size_t)fast[15] - 16);
    else if (IS("fastbin-live")) *(size_t *)fast[15] = ((size_t)fast[15] >> 12) ^ ((size_t)first - 16);
    else if (IS("fastbin-ended")) { /* as if the list ended at a live block of another size */
        *(size_t *)fast[15] = ((size_t)fast[15] >> 12) ^ ((size_t)first - 16);
        *(size_t *)first = (size_t)first >> 12;
    }
    else if (IS("tcache-entry")) { /* the thread's tcache, of whatever form, has the only pointer to its newest block */
        for (size_t *word = (size_t *)((size_t)live[0] & ~4095ul); word < (size_t *)sbrk(0); word++)
            if (*word == (size_t)cached[4]) *word = 0x4141414141414141;
    }
    else if (IS("top")) { /* the last block's neighbour */
        char *last = malloc(100);
        while (HEAD(last) < 0x10000) last += HEAD(last) & ~7ul;
        HEAD(last) = -1;
    }
    printf("ready\n");
    (void)!read(0, (char[1]){0}, 1);
    return 0;
}
