// Threads that all run through the same lines, each taking ten pages, giving them back and keeping one; main takes
// pages of its own meanwhile, or sleeps with a second word. `crowd THREADS [idle]` runs until it is killed.
// flags: -g -O0 -pthread
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *pages(int count) {
    char *start = mmap(0, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(start, count * 4096, MADV_NOHUGEPAGE);
    memset(start, 1, count * 4096);
    return start;
}

static void work(void) {
    char *some = pages(10);
    usleep(1000);
    munmap(some, 10 * 4096);
    pages(1);
}

static void *rounds(void *unused) {
    for (;;)
        work();
    return unused;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 0;
    pthread_t thread;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, 0, rounds, 0);
    usleep(50000);
    if (count > 2)
        pause();
    for (;;) {
        pages(100);
        char *some = pages(37);
        munmap(some, 20 * 4096);
        usleep(2000);
    }
}
