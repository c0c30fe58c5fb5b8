// Asks the kernel for memory along five paths, all with one stack pointer: alloca() makes up for their depths.
#include <alloca.h>
#include <stdio.h>
#include <unistd.h>

static char *lowest;

__attribute__((noinline)) static void asks(void) {
    char here;
    if (!lowest)
        lowest = &here - 8192;
    volatile char *filler = alloca(&here - lowest);
    filler[0] = 1;
    sbrk(4096);
}

__attribute__((noinline)) static void left(void) { asks(); }
__attribute__((noinline)) static void right(void) { asks(); }

__attribute__((noinline)) static void padded(int size) {
    volatile char *filler = alloca(size);
    filler[0] = 1;
    left();
}

__attribute__((noinline)) static void again(int times) {
    if (times)
        again(times - 1);
    else
        left();
}

int main(void) {
    left();
    for (int i = 0; i < 40; i++) {
        left();
        right();
        padded(16 * (i % 8));
        again(1);
        again(2);
        left();
    }
    puts("done");
    return 0;
}
