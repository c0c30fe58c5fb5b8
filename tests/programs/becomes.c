// Keeps 100 blocks of 1,000 bytes a turn left, and executes the next program, or itself: becomes TURNS [PROGRAM]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *kept[100];

__attribute__((noinline)) void work(int left) {
  for (int i = 0; i < 100; ++i) kept[i] = malloc(1000 * (left + 1));
}

__attribute__((noinline)) void worked(void) { __asm__(""); }

int main(int argc, char **argv) {
  int left = argc > 1 ? atoi(argv[1]) : 0;
  work(left);
  worked();
  if (left > 0) {
    char rest[20];
    snprintf(rest, sizeof rest, "%d", left - 1);
    execl(argc > 2 ? argv[2] : "/proc/self/exe", argv[0], rest, (char *)0);
    perror("exec");
    return 1;
  }
  puts("became");
  return 0;
}
