// Loads the library that it is told, when it gets a line.
// flags: -ldl
#include <dlfcn.h>
#include <stdio.h>

int answer = 0;

void loaded(void *library) {
  int *value = library ? dlsym(library, "later_value") : NULL;
  answer = value ? *value : -1;
  printf("loaded %d\n", answer);
  fflush(stdout);
}

int main(int count, char **arguments) {
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF)
    if (count > 1) loaded(dlopen(arguments[1], RTLD_NOW));
  return 0;
}
