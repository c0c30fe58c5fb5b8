/* A function that is called in a loop, by itself, and by the handler of a timer's signals; it counts its calls. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile long ticks, passed_by_handler, calls;
static char stack[1 << 16];

__attribute__((noinline)) static void passed(int deeper)
{
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED); /* the handler may come between a read and a write */
    if (deeper)
        passed(deeper - 1);
    __asm__ volatile("" ::: "memory");
}

static void handler(int number)
{
    ticks += number != 0;
    if (ticks % 3 == 0 && passed_by_handler < 4)
        for (int again = 0; again < 2; again++, passed_by_handler++)
            passed(0);
}

static char *kept[100000];
static int count;

__attribute__((noinline)) static void turn(void)
{
    for (int i = 0; i < 100; i++) {
        char *block = malloc(1000);
        memset(block, 1, 1000);
        kept[count++] = block;
    }
    __asm__ volatile("" ::: "memory");
}

int main(int words, char **word)
{
    int turns = words > 1 ? atoi(word[1]) : 10, microseconds = words > 2 ? atoi(word[2]) : 1000;
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&other, 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval each = {{0, microseconds}, {0, microseconds}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, 0);
    for (int i = 0; i < turns; i++) {
        turn();
        passed(0);
        passed(0);
        passed(2);
        usleep(5000);
    }
    while (microseconds && passed_by_handler < 4)
        usleep(5000);
    setitimer(ITIMER_REAL, &none, 0);
    printf("%ld calls, %d blocks\n", calls, count);
    return 0;
}
