/* A handler on an alternate stack is interrupted by another's signals: the frames of both must stay as they are. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define TICKS 25

static volatile long calls, ticks, changed;

__attribute__((noinline)) void turn(int depth)
{
    volatile int words[64];
    for (int i = 0; i < 64; i++)
        words[i] = depth * i;
    calls++;
    if (depth == 0)
        raise(SIGUSR1);
    free(malloc(1000));
    for (int i = 0; i < 64; i++)
        changed += words[i] != depth * i;
}

static void tick(int number)
{
    if (ticks++ < TICKS)
        turn(number != 0 ? 2 : 3);
}

static void outer(int number)
{
    turn(number != 0);
    for (volatile int i = 0; i < 2000000; i++) {
    }
    turn(number != 0);
}

int main(void)
{
    static char area[1 << 16];
    stack_t stack = {.ss_sp = area, .ss_size = sizeof area};
    struct sigaction on_tick = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct sigaction on_user = {.sa_handler = outer, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaltstack(&stack, 0);
    sigaction(SIGALRM, &on_tick, 0);
    sigaction(SIGUSR1, &on_user, 0);
    setitimer(ITIMER_REAL, &every, 0);
    for (int i = 0; i < 8; i++)
        turn(0);
    while (ticks < TICKS) {
    }
    setitimer(ITIMER_REAL, &never, 0);
    printf("%ld calls, %ld words changed\n", calls, changed);
    return 0;
}
