// flags: -pthread
/* Keeps blocks and frees others in several threads, prints jemalloc's own figures and waits; typed a line, its threads
   allocate and free without pause, sizes up to 3,000 bytes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int mallctl(const char *name, void *old, size_t *size, void *new, size_t new_size);

enum { BLOCKS = 100000, LARGE = 400, THREADS = 3, HELD = 2000 };
static void *kept[BLOCKS], *large[LARGE];
static atomic_int done, goes_on;

static void *allocate(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    void **held = calloc(HELD, sizeof *held);
    for (long turn = 0; goes_on || turn < 20000; turn++) {
        int one = rand_r(&state) % HELD;
        free(held[one]);
        size_t size = 16 + rand_r(&state) % 2900;
        memset(held[one] = malloc(size), 1, size);
        if (turn == 19999) {
            done++;
            while (!goes_on) usleep(1000);
        }
    }
    return 0;
}

static size_t figure(const char *name) {
    size_t value = 0, size = sizeof value;
    return mallctl(name, &value, &size, 0, 0) ? 0 : value;
}

int main(void) {
    static char output[4096], input[64];
    setvbuf(stdout, output, _IOLBF, sizeof output);
    setvbuf(stdin, input, _IOFBF, sizeof input);
    for (int n = 0; n < BLOCKS; n++) memset(kept[n] = malloc(200), 1, 200);
    for (int n = 0; n < BLOCKS; n++)
        if (n % 100) free(kept[n]);
    for (int n = 0; n < LARGE; n++) memset(large[n] = malloc(5000), 1, 5000);
    memset(malloc(3 << 20), 1, 3 << 20);
    void *freed[4];
    for (int n = 0; n < 4; n++) memset(freed[n] = malloc(4 << 20), 1, 4 << 20);
    for (int n = 0; n < 4; n++) free(freed[n]);
    for (size_t n = 1; n <= THREADS; n++) {
        pthread_t thread;
        pthread_create(&thread, 0, allocate, (void *)n);
    }
    while (done < THREADS) usleep(1000);
    unsigned long epoch = 1;
    size_t size = sizeof epoch;
    for (int n = 0; n < 2; n++) mallctl("epoch", &epoch, &size, &epoch, size);
    unsigned arenas = 0;
    size_t cached = 0, of_number = sizeof arenas;
    mallctl("arenas.narenas", &arenas, &of_number, 0, 0);
    for (unsigned n = 0; n < arenas; n++) {
        char name[64];
        snprintf(name, sizeof name, "stats.arenas.%u.tcache_bytes", n);
        cached += figure(name);
    }
    printf("allocated %zu cached %zu returned %zu\n", figure("stats.allocated"), cached, figure("stats.retained"));
    printf("free %zu lazy %zu ", figure("stats.arenas.4096.pdirty"), figure("stats.arenas.4096.pmuzzy"));
    printf("extents %zu\n", figure("stats.arenas.4096.hpa_sec_bytes")); /* freed, and cached */
    puts("ready");
    getchar();
    goes_on = 1;
    puts("goes on");
    for (;;) pause();
}
