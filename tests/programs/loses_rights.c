// Keeps 100 blocks, then gives up what a profiler needs to write its file: loses_rights chroot|user|files|size|memory|…
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void *kept[100];

__attribute__((noinline)) void keep(void) {
  for (int i = 0; i < 100; ++i) kept[i] = malloc(4096);
}

__attribute__((noinline)) void lost(void) { __asm__(""); }

static int limit(int what, rlim_t most) {
  struct rlimit both = {most, most};
  return setrlimit(what, &both);
}

// Soft only: gperftools aborts a program that can't map memory for its last dump, and gets its memory back before that.
static int limit_memory(rlim_t most) {
  struct rlimit both;
  if (getrlimit(RLIMIT_AS, &both)) return 1;
  both.rlim_cur = most < both.rlim_max ? most : both.rlim_max;
  return setrlimit(RLIMIT_AS, &both);
}

static int lose(const char *what, const char *folder) {
  if (!strcmp(what, "chroot")) return chroot(folder) || chdir("/");
  if (!strcmp(what, "user")) return setgroups(0, 0) || setgid(65534) || setuid(65534);
  if (!strcmp(what, "files")) return limit(RLIMIT_NOFILE, 3);
  if (!strcmp(what, "size")) return limit(RLIMIT_FSIZE, 100);
  if (!strcmp(what, "memory")) return limit_memory(1000);
  if (!strcmp(what, "folder")) return chdir("/");
  for (int descriptor = 0; descriptor < 1024; ++descriptor) close(descriptor);
  return 0;
}

int main(int argc, char **argv) {
  keep();
  if (argc < 3 || lose(argv[1], argv[2])) return 2;
  lost();
  return limit_memory(RLIM_INFINITY) ? 3 : 7;
}
