// Is inside its allocator nearly all the time; ends when its parent does.
#include <stdlib.h>
#include <unistd.h>

static void *volatile block;

int main(void) {
  pid_t parent = getppid();
  for (unsigned long n = 0; n % 100000 || getppid() == parent; n++) {
    block = malloc(100);
    free(block);
  }
  return 0;
}
