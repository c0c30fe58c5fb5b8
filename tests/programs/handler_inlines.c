/* A function that is inlined into the handler of a timer's signals, which come until it was called 300 times. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile long calls, total;
static char *kept[100000];
static int count;

static inline __attribute__((always_inline)) void passed(long number)
{
    total += number;
    calls++;
}

static void handler(int number)
{
    if (calls < 300)
        passed(number);
}

__attribute__((noinline)) static void turn(void)
{
    for (int i = 0; i < 100; i++)
        kept[count++] = calloc(1, 1000);
    __asm__ volatile("" ::: "memory");
}

int main(int words, char **word)
{
    int turns = words > 1 ? atoi(word[1]) : 10, microseconds = words > 2 ? atoi(word[2]) : 1000;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval each = {{0, microseconds}, {0, microseconds}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, 0);
    for (int i = 0; i < turns; i++)
        turn();
    struct timespec pause = {0, 1000000};
    while (calls < 300)
        nanosleep(&pause, 0);
    setitimer(ITIMER_REAL, &none, 0);
    printf("%ld calls, %d blocks\n", calls, count);
    return 0;
}
