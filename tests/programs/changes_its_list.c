// Once a debugger has come, a process beside it, with the same memory, writes into the dynamic linker's list.
#define _GNU_SOURCE
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static char stack[1 << 16];
static char *name;
static char status[64];

static int traced(void) {
  char line[256];
  int found = 0;
  FILE *file = fopen(status, "r");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, "TracerPid:", 10)) found = atoi(line + 10);
  if (file) fclose(file);
  return found;
}

static int watch(void *unused) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (!traced()) usleep(100);
  for (struct link_map *map = _r_debug.r_map; map; map = map->l_next)
    if (map->l_name[0] == '/') map->l_name = name;
  for (;;) pause();
}

int main(int count, char **arguments) {
  name = arguments[1];
  sprintf(status, "/proc/%d/status", getpid());
  if (count > 1) clone(watch, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
