// A heap whose changes are known: each word on the standard input changes it, and "ready" is printed behind the facts.
//
// usage: heap_moments COUNT
//   grow    COUNT more tasks, and 3 COUNT more blocks that only the cache holds
//   forget  the cache loses its blocks, which nothing else holds: prints their number and bytes
//   lose    COUNT blocks are allocated and lost: prints their number and bytes
#include <alloca.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <map>
#include <string>

struct Task {
    virtual ~Task() {}
    char weight[100];
};

struct Entry {
    Entry *next;
    char weight[200];
};

std::map<int, Task> tasks;
Entry *cache;
static int count, entries;

__attribute__((noinline)) static void grow() {
    for (int n = 0; n < count; n++)
        tasks[(int)tasks.size()];
    for (int n = 0; n < 3 * count; n++) {
        cache = new Entry{cache, {}};
        entries++;
    }
}

__attribute__((noinline)) static void forget() {
    printf("forgot %d %zu\n", entries, entries * (malloc_usable_size(cache) + 8));
    cache = nullptr;
    entries = 0;
}

__attribute__((noinline)) static void lose() {
    size_t bytes = 0;
    for (int n = 0; n < count; n++) {
        void *block = calloc(1, 40);
        bytes += malloc_usable_size(block) + 8;
    }
    printf("lost %d %zu\n", count, bytes);
}

// No dead word of a stack leads to a block.
__attribute__((noinline)) static void scrub() {
    volatile char *room = (volatile char *)alloca(1 << 16);
    for (int n = 0; n < 1 << 16; n++)
        room[n] = 0;
}

int main(int, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    count = atoi(argv[1]);
    grow();
    scrub();
    printf("ready\n");
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "grow\n"))
            grow();
        else if (!strcmp(line, "forget\n"))
            forget();
        else if (!strcmp(line, "lose\n"))
            lose();
        scrub();
        printf("ready\n");
    }
}
