/* Maps 24 MiB, fills them, and frees 16 MiB of it by MADV_FREE; with an argument, no child gets the area. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    (void)argv;
    size_t size = 24 << 20;
    char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return 1;
    memset(area, 1, size);
    if (madvise(area, 16 << 20, MADV_FREE)) return 1;
    if (argc > 1 && madvise(area, size, MADV_DONTFORK)) return 1;
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
