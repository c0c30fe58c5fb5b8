/* Holds blocks of 200 bytes by words in memory of its own that a fork leaves out, as V8's heaps.
 *   heap_left_out COUNT [GIB]: and as many more by words far from each other in so many GiB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 200, AREA = 4 << 20 };

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    void **area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || madvise(area, AREA, MADV_DONTFORK)) return 1;
    memset(area, 1, AREA);
    for (int i = 0; i < count; i++) area[i] = memset(malloc(SIZE), 0, SIZE);
    if (argc > 2) { /* as many more, by words that are far from each other */
        size_t size = (size_t)atoi(argv[2]) << 30, step = size / sizeof *area / count;
        area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (area == MAP_FAILED) return 1;
        for (int i = 0; i < count; i++) area[i * step] = memset(malloc(SIZE), 0, SIZE);
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("ready\n");
    char line[8];
    while (read(0, line, sizeof line) > 0)
        ;
    _exit(0);
}
