// Arrays that the compiler has put nowhere: it knows what their elements are.
// flags: -g -O2
#include <stdio.h>
#include <stdlib.h>

static const long weights[4] = {3, 5, 7, 9};
static long sums[3];

int main(int argc, char **argv) {
  long local[4] = {argc, 2, 3, 4};
  void *volatile kept = malloc(100);
  for (int at = 0; at < 4; ++at) local[at] *= weights[at];
  sums[0] = local[1];
  printf("%ld %s\n", sums[0] + local[0], argv[0]);
  free(kept);
  return 0;
}
