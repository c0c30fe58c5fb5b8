/* Waits for a line on a stack of a coroutine's, which is a piece of a larger variable; says whether the rest of that one is
 * as it was. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { BELOW = 1 << 16, STACK = 1 << 16 };
static unsigned char variable[BELOW + STACK];
static ucontext_t outside, inside;

static void waits(void) {
    char line[16];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return;
    long changed = 0;
    for (int i = 0; i < BELOW; i++) changed += variable[i] != 0x5a;
    printf("changed %ld\n", changed);
}

int main(void) {
    memset(variable, 0x5a, BELOW);
    getcontext(&inside);
    inside.uc_stack.ss_sp = variable + BELOW;
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, waits, 0);
    swapcontext(&outside, &inside);
    return 0;
}
