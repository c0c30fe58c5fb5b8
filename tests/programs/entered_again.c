// Functions whose first instruction is reached by more than calls of one function, with the program's own counts.
// flags: -g -O2
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define APART __attribute__((noinline))

static long calls[4], bytes[4];
static void *volatile kept;
static volatile int rounds = 6;

static inline __attribute__((always_inline)) void take(int number, size_t size) {
  kept = malloc(size);
  bytes[number] += malloc_usable_size(kept) + sizeof(size_t);
}

// gcc's loop begins at the first instruction.
APART void touch(volatile char *page, long count) {
  do {
    *page = 1;
    page += 4096;
  } while (--count);
}

APART int odd(int left);

// A jump in place of a call, from either to the other.
APART int even(int left) {
  calls[1]++;
  take(1, 40);
  return left ? odd(left - 1) : 1;
}

APART int odd(int left) {
  take(1, 80);
  return left ? even(left - 1) : 0;
}

// Code for several processors, of which the program chooses when it is loaded.
__attribute__((target_clones("default", "sse4.2", "avx2"))) APART int cloned(int size) {
  calls[2]++;
  take(2, 64 * size);
  return size;
}

// Two functions of one name.
APART static void one(int size) {
  APART void tick(int size) { take(3, size); }
  tick(size);
  kept = NULL;
}

APART static void other(int size) {
  APART void tick(int size) { take(3, 2 * size); }
  tick(size);
  kept = NULL;
}

int main(void) {
  int sum = 0;
  char *pages = mmap(NULL, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  setvbuf(stdout, NULL, _IONBF, 0);
  for (int i = 0; i < rounds; i++) {
    touch(pages + i * 65536, i + 2);
    calls[0]++;
    sum += even(i) + cloned(i);
    one(100);
    other(100);
  }
  printf("own touch %ld %d\n", calls[0], 0);
  printf("own even %ld %ld\n", calls[1], bytes[1]);
  printf("own cloned %ld %ld\n", calls[2], bytes[2]);
  return sum == 123456;
}
