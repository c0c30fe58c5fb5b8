// A child that allocates on its own and a parent that waits for it: forks
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CHILD_ENDS
#define CHILD_ENDS _exit
#endif

void *kept[1000];

void work(int count, int size) {
  for (int i = 0; i < count; ++i) kept[i] = malloc(size);
}

__attribute__((noinline)) void reaped(void) { __asm__(""); }

int main(void) {
  work(100, 100);
  pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    work(1000, 200);
    CHILD_ENDS(0);
  }
  int status;
  waitpid(child, &status, 0);
  reaped();
#ifdef PARENT_GOES_ON
  work(100, 200);
#endif
  puts("reaped");
  return WEXITSTATUS(status);
}
