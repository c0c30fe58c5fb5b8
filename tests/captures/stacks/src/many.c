// Very many call paths: more than gperftools 2.10 writes.
#include <stdlib.h>
__attribute__((noinline)) static void* path(unsigned bits, int depth) {
  void* p;
  if (depth == 0) p = malloc(16 + bits % 7);
  else if (bits >> (depth - 1) & 1) p = path(bits, depth - 1);
  else p = path(bits, depth - 1);
  __asm__ volatile("" ::"r"(p));
  return p;
}
int main(void) {
  for (unsigned bits = 0; bits < 8192; ++bits) path(bits, 13);
}
