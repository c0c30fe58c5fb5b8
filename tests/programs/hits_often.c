// Calls hit() all the time, and says after each hundred calls how many there were.
#include <stdio.h>
#include <unistd.h>

static volatile int count;

__attribute__((noinline)) void hit(void) { count++; }

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  for (;;) {
    hit();
    if (count % 100 == 0) printf("%d\n", count);
    usleep(100);
  }
}
