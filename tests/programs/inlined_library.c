// flags: -O2 -shared -fPIC
// A library that counts the calls of a function that is inlined here: also where it is loaded, in its constructor.
#include <stdio.h>
#include <stdlib.h>

static void *volatile kept;
static volatile int begun, done;

static inline __attribute__((always_inline)) void work(int n) {
  begun = begun + 1;
  kept = malloc(n + 10);
  if (n & 1) free(kept);
  done = done + 1;
}

__attribute__((constructor)) static void is_loaded(void) { work(1); }

__attribute__((noinline)) void run_library(int times) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) work(i);
  for (int i = 0; i < times; i++) work(i);
  printf("work %d %d\n", begun, done);
}
