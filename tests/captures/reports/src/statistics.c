// Some memory in use and some free in an allocator's caches, then the allocator's own statistics.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  static void *kept[20000];
  for (int i = 0; i < 20000; i++) kept[i] = malloc(i % 3000);
  for (int i = 0; i < 20000; i += 3) free(kept[i]);
  void *volatile large = malloc(5 << 20);
  void (*tcmalloc)(char *, int) = (void (*)(char *, int))dlsym(RTLD_DEFAULT, "MallocExtension_GetStats");
  void (*jemalloc)(void (*)(void *, const char *), void *, const char *) =
      (void (*)(void (*)(void *, const char *), void *, const char *))dlsym(RTLD_DEFAULT, "malloc_stats_print");
  void (*mimalloc)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "mi_stats_print");
  static char text[20000];
  if (tcmalloc) tcmalloc(text, sizeof text), fputs(text, stderr);
  if (jemalloc) jemalloc(0, 0, getenv("STATS"));
  if (mimalloc) mimalloc(0);
  return large == 0;
}
