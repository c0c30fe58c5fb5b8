// Bodies of one line, which compilers unroll: 8 calls of one that makes one call, and 6 of one that makes two.
#include <cstdio>
#include <cstdlib>

static void *volatile blocks[40];
static int number;

static inline __attribute__((always_inline)) void makes_one(int n) { blocks[number++] = malloc(100 + n); }

static inline __attribute__((always_inline)) void makes_two(int n) { blocks[number++] = malloc(n); blocks[number++] = malloc(n); }

int main() {
  for (int i = 0; i < 6; ++i) makes_one(i);
  makes_one(7);
  makes_one(8);
  printf("%d\n", number);
  for (int i = 0; i < 6; ++i) makes_two(i);
  printf("%d\n", number);
}
