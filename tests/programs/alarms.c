/* A function that is called all the time, in a process whose timer fires all the time. */
#include <signal.h>
#include <sys/time.h>

static volatile long turns, fired;

static void handler(int number) { fired += number != 0; }

__attribute__((noinline)) static void tick(void)
{
    turns++;
    turns++;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval each = {{0, 1000}, {0, 1000}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &each, 0);
    for (;;)
        tick();
}
