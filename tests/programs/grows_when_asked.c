// flags: -pthread
// Keeps 100 blocks of 1000 bytes at its start and for each byte on its standard input, and says how many it holds.
// Another thread sleeps meanwhile, and tells when a sleep was cut short; at the end of input it ends with 7.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *volatile kept[100000];
static int count;

__attribute__((noinline)) void keep(void) {
  for (int i = 0; i < 100; i++) kept[count++] = malloc(1000);
}

static void *sleeps(void *unused) {
  for (;;) {
    struct timespec span = {0, 200000000};
    if (clock_nanosleep(CLOCK_MONOTONIC, 0, &span, 0) != 0) printf("a sleep was cut short\n");
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  setvbuf(stdout, 0, _IOLBF, 0);
  pthread_create(&thread, 0, sleeps, 0);
  keep();
  printf("holds %d\n", count);
  char letter;
  long got;
  while ((got = read(0, &letter, 1)) == 1) {
    if (letter != '+') continue;
    keep();
    printf("holds %d\n", count);
  }
  printf("input ended with %ld\n", got);
  return 7;
}
