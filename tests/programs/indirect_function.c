// A function whose code is chosen when the program is loaded.
#include <stdlib.h>

static void *volatile kept;

static void choice(int size) { kept = malloc(size); }

static void (*choose(void))(int) { return choice; }

void chosen(int size) __attribute__((ifunc("choose")));

int main(void) {
  for (int i = 1; i < 6; i++) chosen(i);
  return kept == NULL;
}
