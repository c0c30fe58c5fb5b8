// What mtrace logs: blocks that are freed, grown, moved and kept. The last line says what is kept.
#include <malloc.h>
#include <mcheck.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static char *keep(size_t bytes) { return malloc(bytes); }

int main(void) {
  mtrace();
  for (int i = 1; i <= 20; i++) keep(i * 10);
  for (int i = 0; i < 30; i++) free(malloc(500));
  char *grown = calloc(3, 100);
  grown = realloc(grown, 100000);
  char *shrunk = realloc(malloc(4000), 40);
  void *aligned = memalign(256, 1000);
  free(strdup("a text that is freed"));
  muntrace();
  printf("%d bytes in %d blocks\n", 2100 + 100000 + 40 + 1000, 23);
  return grown == shrunk || aligned == grown;
}
