// Four threads ask the kernel for memory at the same time, each for areas of its own size, and give half of them back.
#include <pthread.h>
#include <sys/mman.h>
// flags: -O0 -pthread

#define TIMES 40
static pthread_barrier_t together;

static void *ask(void *number) {
    unsigned long size = 4096UL << (2 * (long)number);
    pthread_barrier_wait(&together);
    for (int i = 0; i < TIMES; i++) {
        void *area = mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (i % 2) munmap(area, size);
    }
    return 0;
}

static void done(void) {}

int main(void) {
    pthread_t threads[4];
    pthread_barrier_init(&together, 0, 4);
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, ask, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    done();
    return 0;
}
