// What glibc's own functions allocate, for mtrace: patterns, lines, a tree; half of it is kept.
#include <mcheck.h>
#include <regex.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) { return strcmp(a, b); }

int main(void) {
  regex_t kept, gone;
  char *line = NULL, *text = NULL;
  size_t size = 0;
  void *tree = NULL;
  mtrace();
  regcomp(&kept, "(a|b)*c{2,9}[[:digit:]]+", REG_EXTENDED);
  regcomp(&gone, "[a-f]x|y", REG_EXTENDED);
  regfree(&gone);
  FILE *file = fopen("words.c", "r");
  while (getline(&line, &size, file) > 0) tsearch(strdup(line), &tree, compare);
  fclose(file);
  for (int n = 0; n < 20; n++) {
    char *word;
    if (asprintf(&word, "%0*d", 7 * n, n) > 0 && n % 2) free(word);
  }
  FILE *memory = open_memstream(&text, &size);
  for (int n = 0; n < 3000; n++) fputs("text", memory);
  fclose(memory);
  muntrace();
}
