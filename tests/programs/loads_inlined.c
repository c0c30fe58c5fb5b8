// flags: -ldl
// Loads the library that is its first argument, of tests/programs/inlined_library.c, and calls its `work` five times.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (!library) return 2;
  void (*run)(int) = (void (*)(int))dlsym(library, "run_library");
  if (!run) return 3;
  run(5);
  return 0;
}
