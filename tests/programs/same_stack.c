// Asks the kernel for memory along seven paths, all with one stack pointer: alloca() makes up for their depths.
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

/* With some size the callers' words of the call before are left on the stack, where they were. */
__attribute__((noinline)) static void turns(int size, int to_left) {
    volatile char *filler = alloca(size);
    filler[0] = 1;
    if (to_left)
        left();
    else
        right();
}

int main(void) {
    left();
    for (int i = 0; i < 40; i++) {
        for (int way = 0; way < 2; way++)
            turns(16 + 512 * way, !way);
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
