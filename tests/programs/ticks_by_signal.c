// Gets SIGPROF each millisecond of its own time while it allocates, and SIGUSR2 once; counts the first.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static void *volatile kept;

static void on_tick(int number) {
  (void)number;
  ticks = ticks + 1;
}

__attribute__((noinline)) void ticked(void) { __asm__(""); }

int main(void) {
  struct sigaction action = {0};
  struct itimerval each = {{0, 1000}, {0, 1000}};
  action.sa_handler = on_tick;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, 0);
  setitimer(ITIMER_PROF, &each, 0);
  while (ticks < 5) {
    kept = malloc(100);
    free(kept);
  }
  kept = malloc(5000);
  ticked();
  raise(SIGUSR2);
  printf("ticks %d\n", (int)ticks);
  return 0;
}
