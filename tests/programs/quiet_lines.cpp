// Functions whose plain lines, without calls and pointers, make known numbers of pages resident; called in several ways.
// flags: -O0
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <sys/mman.h>

static char pool[4 * 4096] __attribute__((aligned(4096)));
static char *area;
static long next_page;
static volatile int sum;

static void touch(int pages) {
    for (int i = 0; i < pages; i++) area[4096 * next_page++] = 1;
}

static void drop() { madvise(pool, sizeof pool, MADV_DONTNEED); }

static int refills(int n) {
    int a = n;
    pool[0] = 1;
    sum += a;
    pool[4096] = 1;
    drop();
    sum -= a;
    pool[0] = 2;
    a++;
    drop();
    return a;
}

static int thrower(int n) {
    touch(1);
    if (n % 2) throw std::runtime_error("odd");
    return n;
}

static int catches(int n) {
    int caught = 0;
    sum += n;
    try {
        thrower(n);
        sum++;
    } catch (const std::exception &) {
        caught++;
        touch(2);
        caught++;
    }
    sum ^= caught;
    return caught;
}

static int deeper(int n) {
    volatile char frame[3 * 4096];
    sum += n;
    frame[6000] = 1;
    sum ^= n;
    if (n) deeper(n - 1);
    return sum;
}

static void ends(int n) {
    sum += n;
    sum ^= n;
    if (n == 4) exit(0);
    sum--;
}

static void handled(int) { touch(3); }

static int raises(int n) {
    int a = n;
    a += 2;
    sum += a;
    raise(SIGUSR1);
    sum -= a;
    return a;
}

int main() {
    area = (char *)mmap(0, 4096L * 100000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, 4096L * 100000, MADV_NOHUGEPAGE);
    madvise(pool, sizeof pool, MADV_NOHUGEPAGE);
    try {
        thrower(1);
    } catch (const std::exception &) {
    }
    signal(SIGUSR1, handled);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_DFL);
    drop();
    for (int i = 0; i < 30; i++) refills(i);
    for (int i = 0; i < 30; i++) catches(i);
    deeper(20);
    signal(SIGUSR1, handled);
    for (int i = 0; i < 10; i++) raises(i);
    signal(SIGUSR1, SIG_DFL);
    for (int i = 0; i < 10; i++) ends(i);
    return 0;
}
