// Runs on a stack of 8 KiB, as coroutines and goroutines have, with other data right behind its end: small_stack
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static ucontext_t main_context, small;
void *kept[10];

__attribute__((noinline)) void deep(void) {
  __asm__("");
}

static void run(void) {
  for (int i = 0; i < 10; ++i) kept[i] = malloc(1000);
  deep();
}

int main(void) {
  enum { STACK = 8192 };  // where a goroutine begins has less
  char *memory = mmap(0, 3 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 'x', STACK);  // somebody's data, right behind the end of the stack
  getcontext(&small);
  small.uc_stack.ss_sp = memory + STACK;
  small.uc_stack.ss_size = STACK;
  small.uc_link = &main_context;
  makecontext(&small, run, 0);
  swapcontext(&main_context, &small);
  int changed = 0;
  for (int i = 0; i < STACK; ++i) changed += memory[i] != 'x';
  printf("%d bytes behind the stack have changed\n", changed);
  return 0;
}
