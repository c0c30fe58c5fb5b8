#!/usr/bin/env bash
# scalable_allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS) returns TBBMALLOC_OK and 3 of 168 free MiB
#
# Seen with oneTBB 2021.8.0 (Debian 12, libtbbmalloc2 2021.8.0-2+deb12u1). A program allocates 2,000 blocks of 100,000
# bytes and frees all but each tenth: 19 MiB are live, 187 MiB resident, and 184 after the call that "cleans all buffers".
# tbbmalloc takes memory in regions of 1 MiB and returns a region when no block in it is live; of a region with one live
# block it returns no page. If nothing was kept, 3 MiB are left. The call reports TBBMALLOC_OK, so that it looks as if there
# was nothing more to return, and who sees 187 MiB beside 19 of live data looks for a leak.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libtbbmalloc2=2021.8.0-2+deb12u1 >/dev/null 2>&1
dpkg -x libtbbmalloc2_*.deb .
libraries=$(dirname "$(echo "$folder"/usr/lib/*/libtbbmalloc_proxy.so.2)")
cat >program.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 2000, SIZE = 100000 };
static long resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%*d %ld", &pages) != 1) return -1;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE) >> 20;
}
int main(int count, char **words) {
  static char *blocks[BLOCKS];
  int kept = atoi(words[1]);
  for (int n = 0; n < BLOCKS; n++) memset(blocks[n] = malloc(SIZE), 1, SIZE);
  for (int n = 0; n < BLOCKS; n++)
    if (!kept || n % kept) free(blocks[n]);
  int (*command)(int, void *) = (int (*)(int, void *))dlsym(RTLD_DEFAULT, "scalable_allocation_command");
  long before = resident();
  int result = command(0, NULL); /* TBBMALLOC_CLEAN_ALL_BUFFERS */
  printf("%d %ld %ld\n", result, before, resident());
  return count < 2;
}
C
gcc -O1 program.c -o program -ldl
preloaded() { LD_LIBRARY_PATH=$libraries LD_PRELOAD=$libraries/libtbbmalloc_proxy.so.2 ./program "$1"; }
read -r none_result _ none_left < <(preloaded 0)
read -r result before left < <(preloaded 10)
echo "each tenth kept: $before MiB resident, then result $result (TBBMALLOC_OK is 0) and $left MiB; none kept: $none_left MiB left"
((none_result == 0 && none_left <= 10 && result == 0 && before >= 170 && left >= 165)) || { echo "this has changed" && exit 1; }
echo "as recorded"
