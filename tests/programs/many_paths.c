// Allocates once through each of PATHS different call paths, then calls built(): many_paths [PATHS] [ROUNDS]
// flags: -O0
//
// Each number is a path: its bits, lowest first, say which function calls next. A heap profile holds
// nearly four nodes a path (250: 1,000; 12,500: 50,000). A second round adds to the same paths.
#include <stdlib.h>

void left(unsigned bits, int depth);
void right(unsigned bits, int depth);

void *volatile kept;

void left(unsigned bits, int depth) {
  if (depth == 0)
    kept = malloc(16);
  else if (bits & 1)
    right(bits >> 1, depth - 1);
  else
    left(bits >> 1, depth - 1);
}

void right(unsigned bits, int depth) {
  if (depth == 0)
    kept = malloc(24);
  else if (bits & 1)
    right(bits >> 1, depth - 1);
  else
    left(bits >> 1, depth - 1);
}

void built(void) {}

int main(int argc, char **argv) {
  const unsigned paths = argc > 1 ? strtoul(argv[1], NULL, 10) : 500;
  const int rounds = argc > 2 ? atoi(argv[2]) : 1;
  int depth = 0;
  while ((1u << depth) < paths) ++depth;
  for (int round = 0; round < rounds; ++round) {
    for (unsigned path = 0; path < paths; ++path) left(path, depth);
    built();
  }
  return 0;
}
