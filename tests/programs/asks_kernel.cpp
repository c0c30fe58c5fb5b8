// Asks the kernel for memory in known ways, from known lines; with an argument it reads a million times instead,
// with "set" it has the C library fill a GiB, with "often" it asks 2,000 times, with "seldom" some 250 times a second between other work.
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
// flags: -O0

static char *fresh(size_t size) {
    void *area = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return static_cast<char *>(area);
}

static void fill(size_t size) {
    char *area = fresh(size);
    // Slowly where it is much, so that whoever looks on sees it happen.
    for (size_t at = 0; at < size; at += 4096)
        for (volatile int i = 0; i < (size > (1 << 20) ? 50000 : 1); i = i + 1) area[at] = 1;
}

static void small_blocks() {
    for (int i = 0; i < 20000; i++) memset(malloc(100), 1, 100);
}

static void ask(int times, long work) {
    for (int i = 0; i < times; i++) {
        munmap(fresh(1 << 16), 1 << 16);
        for (volatile long n = 0; n < work; n = n + 1) {}
    }
}

static void set(size_t size) {
    memset(fresh(size), 1, size);
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "often")) {
        ask(1000, 0);
        return 0;
    }
    if (count > 1 && !strcmp(words[1], "seldom")) {
        ask(200, 24000000);
        return 0;
    }
    if (count > 1 && !strcmp(words[1], "set")) {
        set(1 << 30);
        return 0;
    }
    if (count > 1) {
        int file = open("/dev/zero", O_RDONLY);
        char byte;
        for (int i = 0; i < 1000000; i++)
            if (read(file, &byte, 1) != 1) return 1;
        return 0;
    }
    char *area = fresh(10 << 20);
    munmap(area, 10 << 20);
    small_blocks();
    std::thread worker([] { fill(5 << 20); });
    worker.join();
    for (int i = 0; i < 50; i++)
        fill(256 << 10);
    return 0;
}
