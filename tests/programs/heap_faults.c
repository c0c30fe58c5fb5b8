/* One strange memory a mode, then waits on its standard input. Prints "ready".
 *   heap_faults MODE */
#define _GNU_SOURCE
#include <gnu/libc-version.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#define IS(name) (strcmp(mode, name) == 0)
static void *kept[4096];

static void *sleeper(void *unused) {
    for (;;) pause();
    return unused;
}

static void *short_lived(void *unused) {
    char deep[100000];
    memset(deep, 1, sizeof deep);
    return deep[5] ? unused : NULL;
}

static void *several_heaps(void *unused) { /* a further arena takes 64 MiB at a time */
    long bytes = 0;
    for (int i = 0; i < 4000; i++) bytes += malloc_usable_size(kept[i] = malloc(50000));
    printf("live %ld 4000\n", bytes);
    sleeper(unused);
    return unused;
}

static void handling(int number) { kept[4095] = (void *)(long)number; }

static void fill(int count, size_t size) {
    for (int i = 0; i < count; i++) memset(kept[i] = malloc(size), 0x55, size);
}

static void serve(void) {
    char line[16];
    printf("pid %d\nready\n", getpid());
    while (read(0, line, sizeof line) > 0) {
        if (line[0] == 't') {
            malloc_trim(0);
            printf("trimmed\n");
        }
        if (line[0] == 'q') _exit(0);
    }
    _exit(0);
}

static void *coroutine_stack(size_t size) {
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    memset(stack, 1, size);
    return stack;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (IS("corrupt-size")) {
        fill(1000, 100);
        ((size_t *)kept[500])[-1] = 0x4141414141414141;
    } else if (IS("cycle")) { /* a tcache that leads back to itself, as after a double free */
        fill(100, 60);
        for (int i = 0; i < 6; i++) free(kept[i]);
        size_t *next = kept[3];
        *next = ((size_t)next >> 12) ^ (size_t)next;
    } else if (IS("sbrk")) {
        fill(1000, 500);
        memset(sbrk(123456), 0x33, 123456);
        fill(4000, 500);
    } else if (IS("sbrk-last")) {
        fill(2000, 500);
        for (int i = 1000; i < 2000; i++) free(kept[i]);
        memset(sbrk(8192), 0x33, 8192);
    } else if (IS("heaps")) {
        pthread_t id;
        pthread_create(&id, NULL, several_heaps, NULL);
        while (!kept[3999]) usleep(1000);
        usleep(10000);
    } else if (IS("growsdown")) {
        char *area = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_STACK, -1, 0);
        memset(area, 1, 1 << 20);
    } else if (IS("own-allocator")) {
        char *area = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(area, 1, 8 << 20);
    } else if (IS("named")) {
        char *area = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(area, 1, 4 << 20);
        prctl(0x53564d41 /* PR_SET_VMA */, 0, area, 4 << 20, "my pool");
    } else if (IS("huge-pages")) {
        char *area = aligned_alloc(2 << 20, 32 << 20);
        madvise(area, 32 << 20, MADV_HUGEPAGE);
        memset(area, 1, 32 << 20);
    } else if (IS("zero-pages")) { /* read, never written: present, but not resident */
        volatile char *area = malloc(64 << 20);
        long sum = 0;
        for (long i = 0; i < 32 << 20; i += 4096) sum += area[i];
        kept[0] = (void *)area + sum;
    } else if (IS("aligned")) {
        for (int i = 0; i < 20; i++)
            memset(kept[i] = aligned_alloc(16 << (i % 9), 300000), 1, 300000);
    } else if (IS("threads")) {
        pthread_t id;
        for (int i = 0; i < 6; i++) pthread_create(&id, NULL, sleeper, NULL);
        pthread_t ended[5];
        for (int i = 0; i < 5; i++) pthread_create(&ended[i], NULL, short_lived, NULL);
        for (int i = 0; i < 5; i++) pthread_join(ended[i], NULL);
    } else if (IS("mappings")) { /* alternating rights keep the kernel from joining them */
        long most = atol(argv[2]);
        char *area = mmap(NULL, most << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long i = 0; i < most; i += 2) {
            area[i << 12] = 1;
            mprotect(area + (i << 12), 4096, PROT_READ);
        }
    } else if (IS("swap")) {
        fill(4000, 5000);
        madvise((void *)((size_t)kept[100] & -4096), (char *)kept[3900] - (char *)kept[100] & -4096,
                21 /* MADV_PAGEOUT */);
    } else if (IS("ksm")) {
        char *area = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(area, 7, 8 << 20);
        madvise(area, 8 << 20, MADV_MERGEABLE);
    } else if (IS("coroutine")) { /* the thread stands on a stack that it made itself; another one rests */
        static ucontext_t here, there;
        fill(100, 100);
        coroutine_stack(1 << 20);
        getcontext(&there);
        there.uc_stack.ss_sp = coroutine_stack(1 << 20);
        there.uc_stack.ss_size = 1 << 20;
        makecontext(&there, serve, 0);
        swapcontext(&here, &there);
    } else if (IS("locked")) { /* as if a thread had been stopped inside malloc */
        fill(100, 100);
        /* main_arena's first word is its lock; it lies before the bins that a free chunk points to */
        void *first = malloc(5000), *wall = malloc(5000);
        free(first);
        kept[0] = wall;
        size_t bin = *(size_t *)first; /* the unsorted bin: bins - 16, which is the address of `top` */
        int minor = atoi(strchr(gnu_get_libc_version(), '.') + 1);
        *(int *)(bin - (minor >= 43 ? 8 : 96)) = 1; /* what lies before top: two words, or fastbins too */
    } else if (IS("handler")) {
        fill(100, 100);
        signal(SIGUSR1, handling);
        raise(SIGUSR1);
    } else if (IS("busy")) {
        printf("pid %d\nready\n", getpid());
        for (;;) {
            for (int i = 0; i < 3000; i++) kept[i] = malloc(40 + i);
            for (int i = 0; i < 3000; i++) free(kept[i]);
        }
    }
    serve();
}
