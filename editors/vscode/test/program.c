/* Keeps 1,000,000 bytes a call, and prints what it was started with. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *kept[100];
static int many;

void keep(void) {
  kept[many] = malloc(1000000);
  memset(kept[many], 1, 1000000); /* touches */
  many++;
}

int main(int count, char **words) {
  char folder[4096];
  const char *variable = getenv("GIVEN");
  if (count > 1 && !strcmp(words[1], "nothing")) return 5;
  if (count > 1 && !strcmp(words[1], "deaf")) {
    signal(SIGTERM, SIG_IGN);
    fclose(fopen("deaf", "w"));
    for (;;) pause();
  }
  for (int i = 0; count > 1 && !strcmp(words[1], "much") && i < 20000; i++) puts("a line of a program that prints much more than a pipe holds");
  for (int i = 1; i < count; i++) printf("word <%s>\n", words[i]);
  printf("variable <%s>\nfolder <%s>\n", variable ? variable : "", getcwd(folder, sizeof folder));
  fflush(stdout);
  keep();
  keep();
  return 3;
}
