/* Fills a heap with blocks, then frees two of three: what is free lies between live blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 20000 };
static char *block[BLOCKS];

static void fill(void) {
  for (int i = 0; i < BLOCKS; i++) {
    size_t size = 900 + i % 200;
    block[i] = malloc(size);
    memset(block[i], 1, size);
  }
}

static void thin_out(void) {
  for (int i = 0; i < BLOCKS; i++)
    if (i % 3) {
      free(block[i]);
      block[i] = NULL;
    }
}

int main(void) {
  fill();
  puts("full");
  fflush(stdout);
  getchar();
  thin_out();
  puts("thin");
  fflush(stdout);
  getchar();
  return block[0] ? 0 : 1;
}
