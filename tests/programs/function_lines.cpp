// A function of some twenty lines whose lines allocate known numbers of pages; called often, in several ways.
// flags: -O0
#include <csetjmp>
#include <cstdlib>
#include <stdexcept>
#include <sys/mman.h>
#include <vector>

static char *area;
static long next_page;
static volatile int sum;

static void touch(int pages) {
    for (int i = 0; i < pages; i++) area[4096 * next_page++] = 1;
}

static int work(int n) {
    int a = n;
    sum += a;
    touch(1);
    sum += a * 2;
    for (int i = 0; i < 3; i++)
        sum += i;
    if (n % 2)
        touch(2);
    else
        sum--;
    area[4096 * next_page++] = 1;
    sum++;
    sum += n;
    sum ^= 3;
    sum -= n;
    int b = sum;
    b += a;
    if (b == -12345678)
        return 1;
    sum = b;
    return 0;
}

static int recursive(int depth) {
    touch(1);
    if (depth)
        recursive(depth - 1);
    touch(2);
    return depth;
}

static int thrower(int n) {
    touch(1);
    if (n % 2)
        throw std::runtime_error("odd");
    touch(3);
    return n;
}

static jmp_buf place;

static void jumper(int n) {
    touch(1);
    if (n % 3 == 0)
        longjmp(place, 1);
    touch(2);
}

// A jump inside the call that is watched.
static int tries(int n) {
    jmp_buf outer;
    __builtin_memcpy(&outer, &place, sizeof outer);
    if (!setjmp(place)) jumper(n);
    __builtin_memcpy(&place, &outer, sizeof outer);
    return n;
}

int main() {
    area = (char *)mmap(0, 4096L * 100000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, 4096L * 100000, MADV_NOHUGEPAGE);
    try {
        thrower(1);
    } catch (const std::exception &) {
    }
    for (int i = 0; i < 1000; i++)
        work(i);
    recursive(3);
    for (int i = 0; i < 10; i++) {
        try {
            thrower(i);
        } catch (const std::exception &) {
        }
    }
    for (volatile int i = 0; i < 9; i = i + 1)
        if (!setjmp(place)) jumper(i);
    for (int i = 0; i < 9; i++) tries(i);
    return 0;
}
