// Three processes leak into one log, perhaps at the same time.
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void leak(int bytes) {
  void **volatile outer = static_cast<void **>(malloc(bytes));
  *outer = calloc(1, 2 * bytes);
  outer = nullptr;
}

__attribute__((noinline)) static void wipe() {
  volatile char stack[8192];
  for (char volatile &byte : stack) byte = 0;
}

int main() {
  for (int child = 1; child <= 2; child++)
    if (fork() == 0) {
      leak(child * 1000);
      wipe();
      return 0;
    }
  leak(100);
  wipe();
  while (wait(nullptr) > 0) continue;
  return 0;
}
