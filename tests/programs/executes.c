// Maps 50 MiB and executes itself; the second program maps 5 MiB.
// flags: -g -O0
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void take(long size) {
    memset(mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, size);
}

static void done(void) {}

int main(int count, char **words) {
    (void)words;
    if (count == 1) {
        take(50 << 20);
        execl("/proc/self/exe", "executes", "again", (char *)0);
    }
    take(5 << 20);
    done();
    return 0;
}
