// Answers each line of its standard input, keeping a copy: reads_lines
#include <stdio.h>
#include <string.h>

void *kept[10000];

void keep(int number, const char *line) { kept[number] = strdup(line); }

int main(void) {
  char line[1000];
  int number = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (number < 10000 && fgets(line, sizeof line, stdin)) {
    keep(number++, line);
    printf("line %d: %s", number, line);
  }
  printf("%d lines\n", number);
  return 0;
}
