// Says which of its standard streams are terminals, and the one it owns: terminal
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  printf("stdin %s\n", isatty(0) ? "terminal" : "no terminal");
  printf("stdout %s\n", isatty(1) ? "terminal" : "no terminal");
  printf("stderr %s\n", isatty(2) ? "terminal" : "no terminal");
  printf("/dev/tty %s\n", open("/dev/tty", O_RDWR) >= 0 ? "opens" : "does not open");
  return 0;
}
