/* Threads with blocks in 20 arenas, blocks that all lead to one, and a block of 2 GiB whose mapping ends at a library's.
 *   heap_wide THREADS HOLDERS
 * Prints for each of its variables the bytes of all blocks that only it holds, as malloc counts them, what it lost,
 * and whether the large block ends where another mapping begins; then waits for its standard input to end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NODES = 20, LOST = 7 };
struct node {
    struct node *next;
    long number[4];
};
struct leads { /* to a block that all others lead to, too */
    void *shared;
    long number;
};

static struct node *lists[1000]; /* begins in the page of the file, and ends in another one */
static struct leads **holders;
static char *large;
static long of_lists, of_holders, of_large, of_lost, large_bytes;
static pthread_barrier_t ready;

static void *make(size_t size, long *bytes) {
    void *block = calloc(1, size);
    *bytes += malloc_usable_size(block) + sizeof(size_t);
    return block;
}

static void *fill(void *place) {
    long bytes = 0;
    struct node **end = place;
    for (int i = 0; i < NODES; i++, end = &(*end)->next) *end = make(sizeof **end, &bytes);
    __atomic_fetch_add(&of_lists, bytes, __ATOMIC_RELAXED);
    pthread_barrier_wait(&ready);
    for (;;) pause();
    return NULL;
}

static int begins_another(uintptr_t at) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (maps && fgets(line, sizeof line, maps)) found |= strtoull(line, NULL, 16) == at;
    fclose(maps);
    return found;
}

static void __attribute__((noinline)) lose(void) {
    for (int i = 0; i < LOST; i++) memset(make(200, &of_lost), 0x55, 200);
}

static void __attribute__((noinline)) wipe(void) {
    volatile char stack[65536];
    memset((void *)stack, 0, sizeof stack);
}

/* What follows the stack can't be read, though it is in the same mapping, as with the stacks of glibc 2.42. */
static void take_stack_before_a_guard(pthread_attr_t *attributes, size_t size) {
    char *stack = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    madvise(stack + size, 4096, 102 /* MADV_GUARD_INSTALL, Linux 6.13 */);
    pthread_attr_setstack(attributes, stack, size);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 20, count = argc > 2 ? atoi(argv[2]) : 1000;
    setvbuf(stdout, NULL, _IONBF, 0);
    mallopt(M_ARENA_MAX, 20);
    lose();
    pthread_barrier_init(&ready, NULL, threads + 1);
    pthread_attr_t small, guarded;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_attr_init(&guarded);
    take_stack_before_a_guard(&guarded, 128 << 10);
    pthread_t id;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&id, i ? &small : &guarded, fill, &lists[i * (1000 / threads)])) return 1;
    pthread_barrier_wait(&ready);
    holders = make(count * sizeof *holders, &of_holders);
    void *shared = make(5000, &of_holders);
    for (int i = 0; i < count; i++) {
        holders[i] = make(sizeof **holders, &of_holders);
        holders[i]->shared = shared;
    }
    if (getenv("LARGE")) {
        size_t size = (2UL << 30) + (1 << 20);
        dlopen("libm.so.6", RTLD_NOW);
        large = malloc(size);
        if (!large) return 2;
        large_bytes = malloc_usable_size(large) + 2 * sizeof(size_t); /* with a header of its own */
        char *end = large + malloc_usable_size(large);
        if (!begins_another((uintptr_t)end)) {
            int file = open("/proc/self/exe", 0);
            mmap(end, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0);
        }
        printf("next to another: %d\n", begins_another((uintptr_t)end));
        *(void **)(large + (2UL << 30) + 8) = make(3000, &of_large); /* beyond what 31 bits count */
        *(void **)(end - 8) = make(4000, &of_large);                 /* its last word */
    }
    wipe();
    printf("lists %ld\nholders %ld\nlarge %ld %ld\nlost %d %ld\npid %d\nready\n", of_lists, of_holders, large_bytes,
           of_large, LOST, of_lost, getpid());
    char line[8];
    while (read(0, line, sizeof line) > 0)
        ;
    _exit(0);
}
