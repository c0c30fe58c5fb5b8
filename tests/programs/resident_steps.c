/* Reserves memory in one line, touches it in others and gives some back, between marks; says what is resident there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ul << 20)

static char *pool;

__attribute__((noinline)) void mark(void) {
    static char text[4096]; /* smaps_rollup: statm counts in batches, the larger the more processors there are */
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    if (read(file, text, sizeof text - 1) < 0) abort();
    close(file);
    long resident;
    sscanf(strstr(text, "Rss:"), "Rss: %ld", &resident);
    dprintf(1, "resident %ld\n", resident * 1024);
}

__attribute__((noinline)) static void reserve(void) {
    pool = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise(pool, 256 * MIB, MADV_NOHUGEPAGE);
}

__attribute__((noinline)) static void keep(void) {
    for (size_t at = 0; at < 24 * MIB; at += 4096) pool[at] = 1; /* keeps */
}

__attribute__((noinline)) static void pass(void) {
    for (size_t at = 64 * MIB; at < 96 * MIB; at += 4096) pool[at] = 1; /* passes */
    madvise(pool + 64 * MIB, 32 * MIB, MADV_DONTNEED);
    usleep(500000); /* time to empty the buffers that samples are in */
}

__attribute__((noinline)) static void add(void) {
    for (size_t at = 128 * MIB; at < 144 * MIB; at += 4096) pool[at] = 1; /* adds */
}

int main(int count, char **words) {
    reserve();
    mark();
    keep();
    mark();
    pass();
    add();
    mark();
    madvise(pool, 8 * MIB, MADV_DONTNEED); /* of what was kept */
    mark();
    if (count > 1) execl(words[1], words[1], NULL);
    return 0;
}
