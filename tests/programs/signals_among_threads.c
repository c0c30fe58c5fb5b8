/* Threads that call two functions, one of them inlined, as do the handlers of the signals that they and a timer send. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>

enum { THREADS = 4, TURNS = 10, SIGNALS = 40 };

static atomic_long calls, inlined, handled;
static volatile int are_done;
static pthread_t threads[THREADS];
static pthread_barrier_t barrier;

__attribute__((noinline)) static void turn(int number)
{
    calls++;
    __asm__ volatile("" ::"r"(number) : "memory");
}

static inline __attribute__((always_inline)) void within(int number)
{
    inlined++;
    __asm__ volatile("" ::"r"(number) : "memory");
}

static void handler(int number)
{
    if (handled++ < SIGNALS) {
        turn(number);
        within(number);
    }
}

static void *work(void *word)
{
    long me = (long)word;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TURNS; i++) {
        turn(i);
        within(i);
        for (volatile int wait = 0; wait < 300000; wait++)
            ;
        if (i % 3 == 0)
            pthread_kill(threads[(me + 1) % THREADS], SIGUSR1);
    }
    while (!are_done)
        for (volatile int wait = 0; wait < 1000; wait++)
            ;
    return 0;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    struct itimerval each = {{0, 2000}, {0, 2000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, 0);
    while (handled < SIGNALS)
        for (volatile int wait = 0; wait < 1000; wait++)
            ;
    are_done = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    setitimer(ITIMER_REAL, &none, 0);
    printf("%ld calls, %ld inlined\n", (long)calls, (long)inlined);
    return 0;
}
