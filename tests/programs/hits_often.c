// Calls hit() every 100 microseconds, or as often as its argument says; writes how many calls there were after each hundred.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int count;

__attribute__((noinline)) void hit(void) { count++; }

int main(int count_of_words, char **words) {
  int microseconds = count_of_words > 1 ? atoi(words[1]) : 100;
  setvbuf(stdout, 0, _IOLBF, 0);
  for (;;) {
    hit();
    if (count % 100 == 0) printf("%d\n", count);
    usleep(microseconds);
  }
}
