// Asks the kernel for memory past the C library, between two requests that go through it.
// flags: -g -O0
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *take(long size) {
    char *start = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memset(start, 1, size);
}

static void done(void) {}

int main(void) {
    take(256 << 10);
    char *raw = (char *)syscall(SYS_mmap, 0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(raw, 1, 1 << 20);
    take(512 << 10);
    done();
    munmap(raw, 1 << 20);
    return 0;
}
