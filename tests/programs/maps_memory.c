// Touches memory that it takes from mmap, past malloc: maps_memory [MIB]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void __attribute__((noinline)) mapped(void) { __asm__ volatile(""); }

int main(int argc, char **argv) {
  const size_t size = (argc > 1 ? atol(argv[1]) : 200) * 1024L * 1024L;
  char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return 1;
  memset(area, 1, size);
  mapped();
  puts("mapped");
  return 0;
}
