#!/usr/bin/env bash
# The current_rss of mimalloc's mi_process_info() is not a resident set
#
# Seen with mimalloc 2.0.9 (Debian 12, libmimalloc2.0 2.0.9+ds-2). After malloc() of 20 blocks of 10 MiB, none of them
# touched, it says that 224 MiB are resident; the kernel counts 2. Its documentation calls that the working set (touched
# pages), but on Linux it is what mimalloc has committed, a copy of current_commit; only peak_rss is the
# kernel's. A service that exports it as its memory shows growth where a buffer is reserved, and misses whatever is
# allocated by others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libmimalloc2.0=2.0.9+ds-2 >/dev/null 2>&1
dpkg -x libmimalloc2.0_*.deb .
library=$(echo "$folder"/usr/lib/*/libmimalloc.so.2)
cat >program.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
typedef void tell_t(size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *);
int main(void) {
  static char *volatile blocks[20];
  for (int n = 0; n < 20; n++) blocks[n] = malloc(10 << 20);
  tell_t *tell = (tell_t *)dlsym(RTLD_DEFAULT, "mi_process_info");
  size_t elapsed, user, system, rss, peak, commit, peak_commit, faults;
  tell(&elapsed, &user, &system, &rss, &peak, &commit, &peak_commit, &faults);
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%*d %ld", &pages) != 1) return 1;
  printf("%zu %zu %ld\n", rss >> 20, commit >> 20, pages * sysconf(_SC_PAGESIZE) >> 20);
  return 0;
}
C
gcc -O1 program.c -o program -ldl
read -r rss commit kernel < <(LD_PRELOAD=$library ./program)
echo "200 MiB untouched: current_rss $rss MiB, current_commit $commit MiB; the kernel's count $kernel MiB"
((rss == commit && rss >= 200 && kernel <= 10)) || { echo "this has changed" && exit 1; }
echo "as recorded"
