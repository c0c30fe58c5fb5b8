// Each line of work() touches, or gives back, a known number of pages of one mapping; after each it asks the
// kernel for that mapping's Rss and prints, at the end, what each line did: "LINE PAGES".
// flags: -O0
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 4096
static char *area;
static char text[1 << 18];
static struct { int line; long pages; } done[64];
static int count;
static long former;

static void touch(int first, int pages) {
    for (int i = 0; i < pages; i++) area[(long)(first + i) * 4096] = 1;
}

static long resident(void) {
    int file = open("/proc/self/smaps", O_RDONLY);
    long size = 0, got;
    while ((got = read(file, text + size, sizeof text - 1 - size)) > 0) size += got;
    close(file);
    text[size] = 0;
    long sum = 0;
    unsigned long from = 0, to = 0, kib;
    // munmap splits the mapping: every part of it counts.
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) continue;
        int ours = from >= (unsigned long)area && to <= (unsigned long)area + PAGES * 4096L;
        if (ours && sscanf(line, "Rss: %lu kB", &kib) == 1) sum += kib / 4;
    }
    return sum;
}

static void note(int line) {
    long now = resident();
    done[count].line = line;
    done[count++].pages = now - former;
    former = now;
}

#define NOTE note(__LINE__ - 1)

static void work(int round) {
    touch(0, 1);
    NOTE;
    touch(1, 2);
    NOTE;
    touch(3, 16);
    NOTE;
    touch(19, 64);
    NOTE;
    touch(83, 1000);
    NOTE;
    touch(0, 1);
    NOTE;
    madvise(area + 3 * 4096, 16 * 4096, MADV_DONTNEED);
    NOTE;
    munmap(area + 100 * 4096, 500 * 4096);
    NOTE;
    for (int i = 0; i < 1000; i++) area[(2000L + i) * 4096] = 1;
    NOTE;
    if (round) madvise(area, 90 * 4096, MADV_DONTNEED);
    NOTE;
}

int main(void) {
    memset(text, 1, sizeof text); // smaps may grow from round to round
    // A first round, so that the second finds every function and every page of the C library in place.
    for (int round = 0; round < 2; round++) {
        // Guards on both sides: the kernel merges neighbours into one line of smaps.
        area = mmap(0, (PAGES + 2) * 4096L, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        area += 4096;
        mprotect(area, PAGES * 4096L, PROT_READ | PROT_WRITE);
        madvise(area, PAGES * 4096L, MADV_NOHUGEPAGE);
        former = count = 0;
        work(round);
    }
    for (int i = 0; i < count; i++) printf("%d %ld\n", done[i].line, done[i].pages);
    return 0;
}
