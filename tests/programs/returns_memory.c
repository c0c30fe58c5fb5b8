// flags: -pthread -ldl
/* Keeps few of many blocks, with or without a malloc that is preloaded, and answers lines on its input:
 *   purge   calls what returns its malloc's free memory, and prints by how many bytes its anonymous memory shrank
 *   busy    eight threads allocate and free without pause from now on
 *   halt    these sleep for ever in a signal handler, wherever they are: some hold locks of the allocator */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 60000, LARGE = 24, THREADS = 8, HELD = 2000 };
static void *kept[BLOCKS], *large[LARGE];

static void *allocate(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    static __thread void *held[HELD];
    for (;;) {
        int one = rand_r(&state) % HELD;
        free(held[one]);
        size_t size = 16 + rand_r(&state) % (rand_r(&state) % 50 ? 3000 : 60000);
        memset(held[one] = malloc(size), 1, size);
    }
    return 0;
}

static void sleep_for_ever(int number) {
    (void)number;
    for (;;) pause();
}

static long kib(const char *text, const char *name) {
    const char *found = strstr(text, name);
    return found ? atol(found + strlen(name)) : 0;
}

/* Without the pages that the kernel may take at any time. */
static long anonymous(void) {
    static char text[4096];
    int descriptor = open("/proc/self/smaps_rollup", O_RDONLY);
    long size = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    text[size > 0 ? size : 0] = 0;
    return (kib(text, "\nAnonymous:") - kib(text, "\nLazyFree:")) * 1024;
}

int main(void) {
    static char output[4096], input[64], line[64];
    setvbuf(stdout, output, _IOLBF, sizeof output);
    setvbuf(stdin, input, _IOFBF, sizeof input);
    int (*control)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    void (*release)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    void (*collect)(int) = dlsym(RTLD_DEFAULT, "mi_collect");
    int (*clean)(int, void *) = dlsym(RTLD_DEFAULT, "scalable_allocation_command");
    for (int n = 0; n < BLOCKS; n++) memset(kept[n] = malloc(200), 1, 200);
    for (int n = 0; n < BLOCKS; n++)
        if (n % 1000) free(kept[n]);
    for (int n = 0; n < LARGE; n++) memset(large[n] = malloc(1 << 20), 1, 1 << 20);
    for (int n = 0; n < LARGE; n++)
        if (n % 4) free(large[n]);
    pthread_t threads[THREADS];
    signal(SIGUSR1, sleep_for_ever);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "busy\n")) {
            for (size_t n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, allocate, (void *)(n + 1));
            printf("busy\n");
            continue;
        }
        if (!strcmp(line, "halt\n")) {
            for (int n = 0; n < THREADS; n++) pthread_kill(threads[n], SIGUSR1);
            usleep(100000);
            printf("halted\n");
            continue;
        }
        anonymous();
        long before = anonymous();
        if (control) control("arena.4096.purge", 0, 0, 0, 0);
        else if (release) release();
        else if (collect) collect(1);
        else if (clean) clean(0, 0);
        else malloc_trim(0);
        printf("%ld\n", before - anonymous());
    }
}
