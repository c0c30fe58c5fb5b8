// Brings an allocator of its own: malloc and free hand out pieces of one big array.
#include <stddef.h>

static char arena[1 << 22] __attribute__((aligned(16)));
static size_t used;

void *malloc(size_t size) {
  void *found = arena + used;
  used += (size + 31) & ~(size_t)15;
  return used < sizeof arena ? found : NULL;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *block, size_t size) {
  char *found = malloc(size);
  for (size_t i = 0; block && found && i < size && (char *)block + i < arena + used; i++) found[i] = ((char *)block)[i];
  return found;
}

void *volatile kept;

__attribute__((noinline)) void built(void) { __asm__(""); }

int main(void) {
  for (int i = 0; i < 100; i++) kept = malloc(1000);
  built();
  return 0;
}
