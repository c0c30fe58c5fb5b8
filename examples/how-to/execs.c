// Becomes another program: execs PROGRAM [ARGUMENT ...]
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *kept;

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  kept = malloc(1000);
  execv(argv[1], argv + 1);
  perror(argv[1]);
  return 1;
}
