/* Allocates and frees in known ways, counts for itself, then waits for a line on its standard input.
 *   heap_known MODE [THREADS]
 * It prints what it holds (malloc_usable_size of each live block) and malloc_info's own figures. With FORKED in
 * the environment a child does, which holds what its parent allocated. THREAD_LOCAL_BYTES: of its own variables;
 * LARGEST: of a block. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 20000 };
static char *mode;
static pthread_barrier_t ready, leave;
static long live_bytes, live_blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#ifdef THREAD_LOCAL_BYTES
static __thread volatile char own[THREAD_LOCAL_BYTES];
#endif

static void *fill(void *unused) {
#ifdef THREAD_LOCAL_BYTES
    own[THREAD_LOCAL_BYTES / 2] = 1;
#endif
    void **blocks = malloc(BLOCKS * sizeof *blocks);
    unsigned seed = 12345;
    (void)unused;
    for (int i = 0; i < BLOCKS; i++) {
        seed = seed * 1103515245u + 12345u;
        size_t size = 1 + (seed >> 16) % 300;
#ifdef LARGEST
        size = 1 + (seed >> 8) % LARGEST;
#endif
        if (i % 500 == 0) size = 3000 + (seed >> 16) % 20000;
        blocks[i] = malloc(size);
        memset(blocks[i], 0x21, size);
    }
    for (int i = 0; i < BLOCKS; i++) {
        int gone = strcmp(mode, "all") == 0      ? 1
                   : strcmp(mode, "tenth") == 0  ? i % 10 != 0
                   : strcmp(mode, "half") == 0   ? i >= BLOCKS / 2
                   : strcmp(mode, "middle") == 0 ? i > BLOCKS / 10 && i < BLOCKS * 9 / 10
                   : strcmp(mode, "pairs") == 0  ? i % 4 < 2
                                                 : 0;
        if (gone) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    long bytes = malloc_usable_size(blocks), count = 1;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i]) {
            bytes += malloc_usable_size(blocks[i]);
            count++;
        }
    pthread_mutex_lock(&lock);
    live_bytes += bytes;
    live_blocks += count;
    pthread_mutex_unlock(&lock);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&leave);
    return blocks;
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    char line[16];
    pthread_t ids[256];
    mode = argc > 1 ? argv[1] : "none";
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_barrier_init(&ready, NULL, threads + 1);
    pthread_barrier_init(&leave, NULL, threads + 1);
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, fill, NULL);
    if (!threads) {
        pthread_barrier_destroy(&ready);
        pthread_barrier_destroy(&leave);
        pthread_barrier_init(&ready, NULL, 1);
        pthread_barrier_init(&leave, NULL, 1);
        fill(NULL);
    } else {
        pthread_barrier_wait(&ready);
    }
    if (argc > 3) (void)!malloc(atol(argv[3]));
    if (getenv("FORKED")) {
        if (fork() != 0) {
            wait(NULL);
            return 0;
        }
        printf("pid %d\n", getpid());
    }
    printf("live %ld %ld\n", live_bytes, live_blocks);
    malloc_info(0, stdout);
    printf("ready\n");
    while (read(0, line, sizeof line) > 0 && line[0] == 't') {
        malloc_trim(0);
        printf("trimmed\n");
    }
    return 0;
}
