// Lines that loop, left in every way there is: its end, break, return, goto, exception, longjmp, recursion.
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
// flags: -O0

static volatile int total;
static jmp_buf place;

static int add(int n) {
    total += n;
    return total;
}

static int returns(int n) {
    for (int i = 0; i < n; i++) if (add(i) > 300) return i;
    return -1;
}

static int throws(int n) {
    for (int i = 0; i < n; i++) if (add(1) > 300) throw std::runtime_error("enough");
    return -1;
}

static void jumps(int n) {
    for (int i = 0; i < n; i++) if (i == 50) longjmp(place, 1);
}

static int recurses(int depth) {
    for (int i = 0; i < 3; i++) if (depth) total += recurses(depth - 1);
    total++;
    return 1;
}

static void signals(int n) {
    for (int i = 0; i < n; i++) if (i == 40) raise(SIGUSR1);
    total++;
}

static void handler(int) { total++; }

static void catches() {
    try {
        for (int i = 0; i < 100; i++) if (i == 60) throw std::runtime_error("here");
    } catch (const std::exception &) {
        total++;
    }
}

int main() {
    signal(SIGUSR1, handler);
    for (int i = 0; i < 60; i++) total += i;
    for (int i = 0; i < 60; i++) add(i);
    int found = returns(100);
    total = 0;
    try {
        throws(600);
    } catch (const std::exception &) {
        total = 1;
    }
    if (!setjmp(place))
        jumps(150);
    total = 2;
    recurses(2);
    signals(100);
    catches();
    do { total++; } while (total < 200);
    return found == 0;
}
