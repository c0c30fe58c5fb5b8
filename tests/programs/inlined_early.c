// An inlined call of which gcc executes an instruction early, between those of the line that calls it.
// flags: -g
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static void *volatile sink;
static long before, after[8];
static int used;

__attribute__((noinline)) static long now(void) { return (long)mallinfo().uordblks; }

static inline __attribute__((always_inline)) void note(void *block) { sink = block; }

static inline int half(int size) {
  void *block = malloc(size * 50 + 24);
  note(block);
  return size / 2;
}

int main(int count, char **words) {
  int sum = count + (words == NULL);
  before = now(); sum += half(7); after[used++] = now() - before;
  before = now(); sum += half(9); after[used++] = now() - before;
  printf("own %ld %ld\n", after[0], after[1]);
  return sum == 123456;
}
