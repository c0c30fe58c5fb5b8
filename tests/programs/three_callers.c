/* One function touches 20 pages for each of three callers, with one instruction. "slowly" waits before each; "later" begins
   with 400 pages of the first; "loop" lets them take turns 300 times. With a second word it first waits for a line of
   input. Prints how many pages each had. */
// flags: -O1 -fno-optimize-sibling-calls
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 20, PAGE = 4096, ROUNDS = 300 };

static char *next;

static __attribute__((noinline)) int touch(int pages) {
    int touched = 0;
    for (; touched < pages; touched++, next += PAGE)
        *(volatile char *)next = 1;
    return touched;
}

static __attribute__((noinline)) int first_caller(int pages) { return touch(pages) + 0; }
static __attribute__((noinline)) int second_caller(int pages) { return touch(pages) * 1 + (next == NULL); }
static __attribute__((noinline)) int third_caller(int pages) { return touch(pages) - (next == NULL); }

int main(int argc, char **argv) {
    int (*const callers[])(int) = {first_caller, second_caller, third_caller};
    int counts[3] = {0}, rounds = 1;
    const char *pace = argc > 1 ? argv[1] : "";
    if (argc > 2) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    if (!strcmp(pace, "loop"))
        rounds = ROUNDS;
    size_t size = (size_t)(3 * PAGES * rounds + 400) * PAGE;
    next = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(next, size, MADV_NOHUGEPAGE);
    for (int round = 0; round < rounds; round++)
        for (int n = 0; n < 3; n++) {
            int pages = !strcmp(pace, "later") && n == 0 ? 400 : PAGES;
            if (!strcmp(pace, "slowly"))
                usleep(20000);
            counts[n] += callers[n](pages);
            if (pages != PAGES)
                usleep(200000);
        }
    printf("first_caller %d\nsecond_caller %d\nthird_caller %d\n", counts[0], counts[1], counts[2]);
    return 0;
}
