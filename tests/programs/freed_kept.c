/* Memory that is freed and that malloc keeps: freed_kept MODE.
 *
 *   tcaches  48 threads allocate blocks of many sizes and free them: all are in tcaches
 *   end      what is freed last, small, lies at the end of the heap, and the tcache keeps it there
 *   holes    half of many blocks are freed, none of them at the end
 *   level    malloc's thresholds have risen: a large block at the end is freed and kept
 *   live     nothing is freed
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 48, BLOCKS = 200000 };

static pthread_barrier_t all_done;
static void *kept[THREADS];
static char *blocks[BLOCKS];

/* The compiler would leave out a block that nobody uses. */
__attribute__((noinline)) static void *filled(size_t size) {
    void *volatile block = malloc(size);
    return memset(block, 1, size);
}

static void *fill_tcache(void *number) {
    char *mine[64][7];
    for (int bin = 0; bin < 64; bin++)
        for (int n = 0; n < 7; n++) mine[bin][n] = filled(24 + 16 * bin);
    for (int bin = 0; bin < 64; bin++)
        for (int n = 0; n < 7; n++) free(mine[bin][n]);
    kept[(long)number] = malloc(100);
    pthread_barrier_wait(&all_done);
    for (;;) pause();
    return NULL;
}

static void tcaches(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    pthread_barrier_init(&all_done, NULL, THREADS + 1);
    for (long number = 0; number < THREADS; number++) {
        pthread_t thread;
        pthread_create(&thread, &small, fill_tcache, (void *)number);
    }
    pthread_barrier_wait(&all_done);
}

static void allocate(size_t size) {
    for (int n = 0; n < BLOCKS; n++) blocks[n] = filled(size);
}

static void end(void) {
    allocate(120);
    for (int n = BLOCKS - 7; n < BLOCKS; n++) free(blocks[n]);
    for (int n = 0; n < BLOCKS - 7; n++) free(blocks[n]);
    free(filled(100000));
}

static void holes(void) {
    allocate(400);
    for (int n = 0; n < BLOCKS; n += (n % 40 == 38 ? 2 : 1)) free(blocks[n]);
}

static void level(void) {
    free(filled(24 << 20));
    free(filled(20 << 20));
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "live";
    if (!strcmp(mode, "tcaches")) tcaches();
    if (!strcmp(mode, "end")) end();
    if (!strcmp(mode, "holes")) holes();
    if (!strcmp(mode, "level")) level();
    if (!strcmp(mode, "live")) allocate(120);
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
