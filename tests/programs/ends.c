// Ends as it is told, after it has allocated: ends exit STATUS | signal NUMBER | abort | hang
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *kept;

__attribute__((noinline)) void allocate(void) { kept = malloc(12345); }

__attribute__((noinline)) void never_reached(void) { __asm__(""); }

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "exit";
  const int number = argc > 2 ? atoi(argv[2]) : 0;
  allocate();
  if (strcmp(how, "exit") == 0) exit(number);
  if (strcmp(how, "signal") == 0) raise(number);
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "hang") == 0) {
    puts("ready");
    fflush(stdout);
    for (;;) pause();
  }
  never_reached();
  return 99;
}
