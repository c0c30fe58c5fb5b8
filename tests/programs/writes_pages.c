/* Writes pages that it knows, and prints where they are. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile char table[16 * 4096] __attribute__((aligned(4096)));
static volatile char *pool, *shared;
static char *passed;
static const size_t page = 4096;

__attribute__((noipa)) static void scatter(void) {
    for (int n = 0; n < 100; n += 10) pool[n * page] = 2;
}

__attribute__((noipa)) static void same_again(void) {
    pool[3 * page] = pool[3 * page];
}

__attribute__((noipa)) static long only_reads(void) {
    long sum = 0;
    for (int n = 0; n < 400; n++) sum += pool[n * page];
    return sum;
}

__attribute__((noipa)) static void by_the_kernel(void) {
    int ends[2];
    if (pipe(ends) || write(ends[1], (char *)table, 8192) != 8192 || read(ends[0], (char *)pool + 200 * page, 8192) != 8192) abort();
    close(ends[0]);
    close(ends[1]);
}

__attribute__((noipa)) static void in_new_memory(void) {
    passed = mmap(0, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(passed, 1, 5 * page);
}

static void *fill(void *unused) {
    memset((char *)pool + 150 * page, 3, 7 * page);
    return unused;
}

__attribute__((noipa)) static void in_a_thread(void) {
    pthread_t thread;
    pthread_create(&thread, 0, fill, 0);
    pthread_join(thread, 0);
}

__attribute__((noipa)) static void in_a_child(void) {
    pid_t child = fork();
    if (!child) {
        memset((char *)pool, 4, 400 * page);
        _exit(0);
    }
}

int main(int count, char **words) {
    pool = mmap(0, 512 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((char *)pool, 512 * page, MADV_NOHUGEPAGE);
    memset((char *)pool, 1, 300 * page); /* the rest is only reserved */
    shared = mmap(0, 32 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset((char *)shared, 1, 16 * page);
    printf("pool %p table %p shared %p\n", (void *)pool, (void *)table, (void *)shared);
    fflush(stdout);
    scatter();       /* scatters */
    same_again();    /* same */
    only_reads();    /* reads */
    by_the_kernel(); /* kernel */
    in_new_memory(); /* new */
    table[5 * page] = 1; /* variable */
    shared[3 * page] = shared[20 * page] = 2; /* shared */
    in_a_thread();   /* thread */
    in_a_child();    /* child */
    munmap(passed, 64 * page); /* unmaps */
    if (count > 1) execv(words[1], words + 1); /* executes */
    return 0;        /* end */
}
