#!/usr/bin/env bash
# jemalloc's dirty_decay_ms does not pass while a process is idle
#
# Seen with jemalloc 5.3.0 (Debian 12, libjemalloc2 5.3.0-1). Its manual calls dirty_decay_ms the approximate time until
# unused dirty pages are purged. With dirty_decay_ms:1000 a program that frees 100 MiB and then sleeps still has all that
# were left after the last free() 5 seconds later: the time is looked at only when a thread allocates or frees. Not until
# background_thread:true, which is off by default, does it pass by itself. Who looks at a server after its peak, when it
# is idle, takes those pages for a leak, or for fragmentation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libjemalloc2=5.3.0-1 >/dev/null 2>&1
dpkg -x libjemalloc2_*.deb .
library=$(echo "$folder"/usr/lib/*/libjemalloc.so.2)
cat >program.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static long resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%*d %ld", &pages) != 1) return -1;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE) >> 20;
}
int main(void) {
  static char *blocks[100];
  for (int n = 0; n < 100; n++) memset(blocks[n] = malloc(1 << 20), 1, 1 << 20);
  for (int n = 0; n < 100; n++) free(blocks[n]);
  printf("%ld ", resident());
  sleep(5);
  printf("%ld\n", resident());
  return 0;
}
C
gcc -O1 program.c -o program
read -r freed later < <(LD_PRELOAD=$library MALLOC_CONF=dirty_decay_ms:1000 ./program)
read -r _ helped < <(LD_PRELOAD=$library MALLOC_CONF=dirty_decay_ms:1000,background_thread:true ./program)
echo "after the last free() $freed MiB are resident, 5 s later $later; with background_thread $helped"
((freed >= 30 && later >= freed - 1 && helped <= 12)) || { echo "this has changed" && exit 1; }
echo "as recorded"
