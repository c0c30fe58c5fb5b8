/* A function raises a signal, whose handler calls it on a stack that lies in main's frame: above its own.

   Words: how the handler ends, "returns" or "jumps" back to main. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile int calls, inlined, ended;
static sigjmp_buf back;
static int jumps;

static inline __attribute__((always_inline)) void within(int deeper)
{
    inlined++;
    if (deeper)
        raise(SIGUSR1);
    ended++;
}

__attribute__((noinline)) static void turn(int deeper)
{
    calls++;
    if (deeper)
        raise(SIGUSR2);
    __asm__ volatile("" ::: "memory");
}

static void of_turn(int number)
{
    turn(number == 0);
    turn(0);
    if (jumps)
        siglongjmp(back, 1);
}

static void of_within(int number)
{
    within(number == 0);
    turn(0);
}

int main(int words, char **word)
{
    char stack[1 << 16];
    stack_t above = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&above, 0);
    jumps = words > 1 && !strcmp(word[1], "jumps");
    struct sigaction one = {.sa_handler = of_turn, .sa_flags = SA_ONSTACK};
    struct sigaction other = {.sa_handler = of_within, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &one, 0);
    sigaction(SIGUSR1, &other, 0);
    for (volatile int i = 0; i < 5; i++) {
        if (!sigsetjmp(back, 1)) {
            turn(1);
            ended++;
        }
        within(1);
    }
    printf("%d calls, %d inlined\n", calls, inlined);
    return 0;
}
