/* Three functions that are inlined into main, called in turn under a timer's signals. Words: turns, microseconds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static volatile long ticks;
static char *pool[64];
static int used, total;

static void tick(int number)
{
    ticks += number != 0;
}

static inline __attribute__((always_inline)) void load(int i)
{
    pool[used++] = malloc(1000 + i);
    total += i;
    memset(pool[used - 1], 1, 1000 + i);
}

static inline __attribute__((always_inline)) int parse(int i)
{
    int sum = 0;
    for (int k = 0; k < i * 50 + 20; k++)
        sum += pool[used - 1][k % 900] * k;
    total += sum;
    return sum;
}

static inline __attribute__((always_inline)) void drop(int i)
{
    if (i % 2)
        free(pool[--used]);
    total++;
}

int main(int words, char **word)
{
    int turns = words > 1 ? atoi(word[1]) : 10, microseconds = words > 2 ? atoi(word[2]) : 1000;
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval each = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &each, 0);
    for (int i = 0; i < turns; i++) {
        load(i);
        if (parse(i) == 12345)
            puts("x");
        drop(i);
        struct timespec pause = {0, 3000000};
        while (nanosleep(&pause, &pause)) {
        }
    }
    printf("total %d\n", total);
    return 0;
}
