// Loads the library that its argument names, unloads it, and sleeps.
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
  void *library = dlopen(argv[argc - 1], RTLD_NOW);
  if (!library) {
    puts(dlerror());
    return 2;
  }
  dlclose(library);
  sleep(0);
  puts("end");
  return 0;
}
