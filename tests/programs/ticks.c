// Calls tick() again and again, allocating in each call: ticks [TIMES] (0, the default: until it is ended)
#include <stdio.h>
#include <stdlib.h>

void *last;
volatile long ticks;

void tick(long number) {
  free(last);
  last = malloc(16 + number % 16);
  ++ticks;
}

int main(int argc, char **argv) {
  const long times = argc > 1 ? atol(argv[1]) : 0;
  puts("ready");
  fflush(stdout);
  for (long number = 0; times == 0 || number < times; ++number) tick(number);
  printf("%ld ticks\n", ticks);
  return 0;
}
