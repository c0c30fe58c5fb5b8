/* Makes memory resident within its first milliseconds, and ends. "two": two lines, 1 and 8 MiB, in memory that stays.
   "again": 64 buffers of 1 MiB, one after the other. Prints its peak resident memory in KiB, by the kernel. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1ul << 20)

static char *area(unsigned long size) {
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(start, size, MADV_NOHUGEPAGE);
    return start;
}

static void first(char *start) {
    for (unsigned long at = 0; at < MIB; at += 4096) start[at] = 1;
}

static void second(char *start) {
    for (unsigned long at = 0; at < 8 * MIB; at += 4096) start[at] = 1;
}

static void report(FILE *to) {
    char line[200];
    long peak = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &peak);
    fclose(status);
    fprintf(to, "%ld\n", peak);
    fflush(to);
}

int main(int count, char **words) {
    report(fopen("/dev/null", "w")); /* what that makes resident is then part of the peak that is printed */
    if (count > 1 && !strcmp(words[1], "again"))
        for (int n = 0; n < 64; n++) {
            char *buffer = area(MIB);
            first(buffer);
            munmap(buffer, MIB);
        }
    else {
        char *small = area(MIB), *large = area(8 * MIB);
        first(small);
        second(large);
    }
    report(stdout);
    return 0;
}
