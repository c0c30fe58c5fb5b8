// A program without symbols; it calls into libc so that there is something to stop at.
// flags: -g0 -s
#include <stdio.h>
#include <stdlib.h>

void *kept[100];

int main(void) {
  for (int i = 0; i < 100; ++i) kept[i] = malloc(1000);
  puts("allocated");
  return 0;
}
