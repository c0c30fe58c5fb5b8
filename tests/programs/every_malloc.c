/* every_malloc [THREAD]: fills a heap, then calls malloc and free in all the ways that change it differently: from the top,
 * growing and trimming it, from tcaches, bins and remainders, mapped, resized, aligned. It counts what it holds. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile long live;    /* bytes with headers */
volatile long current; /* the size of the block that is allocated or freed, and a bound of its rest */
volatile int phase;
static char *kept[600];

static long held(void *block) { return malloc_usable_size(block) + 8; }

static void *get(size_t size) {
    current = size + (size > 200000 ? 8192 : 64);
    char *block = malloc(size);
    memset(block, 0x5a, size < 64 ? size : 64);
    live += held(block);
    return block;
}

static void drop(void *block) {
    current = held(block) + (held(block) > 200000 ? 8192 : 64);
    live -= held(block);
    free(block);
}

static void *resize(void *block, size_t size) {
    current = held(block) + size + 8192;
    live -= held(block);
    block = realloc(block, size);
    live += held(block);
    return block;
}

static void change(void) {
    void *p[64];
    for (int i = 0; i < 24; i++) p[i] = get(20 + 90 * i);
    for (int i = 0; i < 24; i += 2) drop(p[i]);
    for (int i = 0; i < 12; i++) p[30 + i] = get(1100 + 40 * i);
    for (int i = 0; i < 12; i++) drop(p[30 + i]);
    for (int i = 1; i < 24; i += 2) drop(p[i]);
    for (int i = 0; i < 30; i++) p[i] = get(24);
    for (int i = 0; i < 30; i++) drop(p[i]);
    for (int i = 0; i < 3; i++) p[i] = get(90000);
    drop(p[1]);
    p[1] = get(5000);
    for (int i = 2; i >= 0; i--) drop(p[i]);
    drop(resize(get(300000), 700000));
    drop(resize(get(2000), 5000));
    current = 8192;
    p[0] = memalign(512, 3000);
    live += held(p[0]);
    drop(p[0]);
}

static void *works(void *unused) {
    (void)unused;
    for (int i = 0; i < 600; i++) kept[i] = get(500 + i % 700);
    for (int i = 0; i < 600; i += 3) drop(kept[i]);
    current = 64;
    phase = 1;
    raise(SIGSTOP);
    change();
    phase = 2;
    for (;;) pause();
    return NULL;
}

int main(int count, char **words) {
    pthread_t id;
    (void)words;
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 64 << 10);
    if (count > 1 && pthread_create(&id, NULL, works, NULL) == 0)
        for (;;) pause();
    works(NULL);
}
