// Writes its folder, its arguments and its environment, each ended by a NUL byte: shows_words [ARGUMENT ...]
#include <stdio.h>
#include <unistd.h>

extern char **environ;

static void show(const char *kind, const char *text) {
  printf("%s %s", kind, text);
  putchar('\0');
}

int main(int argc, char **argv) {
  char folder[4096];
  show("folder", getcwd(folder, sizeof folder) ? folder : "?");
  for (int i = 0; i < argc; ++i) show("argument", argv[i]);
  for (char **entry = environ; *entry; ++entry) show("environment", *entry);
  return 0;
}
