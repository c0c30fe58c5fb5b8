// A program without a dynamic linker: valgrind can't replace its malloc.
// flags: -static
#include <stdlib.h>

void *kept;

void allocate(void) { kept = malloc(1000000); }

int main(void) {
  allocate();
  return kept == NULL;
}
