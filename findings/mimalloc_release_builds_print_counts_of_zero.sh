#!/usr/bin/env bash
# mimalloc's statistics print 0 for what a release build does not count, and "ok" beside it
#
# Seen with mimalloc 2.0.9 (Debian 12, libmimalloc2.0 2.0.9+ds-2). A program allocates 10,000 blocks of 4,000 bytes, all
# written, and frees every second one. With MIMALLOC_SHOW_STATS=1 the table at its end says "touched: 128.5 KiB",
# "pages: 0" and "threads: 0", "freed 0" for all, and "ok" in the column that tells whether all was freed; the last
# line has an rss of some 40 MiB, as the kernel has it. The release build doesn't count these: its table does not say so.
# A reader that takes "touched" for the memory in use is wrong 300 times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libmimalloc2.0=2.0.9+ds-2 >/dev/null 2>&1
dpkg -x libmimalloc2.0_*.deb .
cat >program.c <<'C'
#include <stdlib.h>
#include <string.h>
static char *blocks[10000];
int main(void) {
  for (int i = 0; i < 10000; i++) memset(blocks[i] = malloc(4000), 1, 4000);
  for (int i = 0; i < 10000; i += 2) free(blocks[i]);
  return blocks[1][0] == 0;
}
C
gcc -O0 program.c -o program
MIMALLOC_SHOW_STATS=1 LD_PRELOAD=$(find "$folder/usr/lib" -name 'libmimalloc.so.2.0') ./program 2>said
touched=$(sed -n 's/^ *touched: *\([0-9.]* [KMG]iB\) .*/\1/p' said)
pages=$(sed -n 's/^ *pages: *\([0-9]*\) .*/\1/p' said)
rss=$(sed -n 's/.* rss: \([0-9]*\).* MiB.*/\1/p' said)
echo "mimalloc 2.0.9, 38 MiB written, half of it freed: touched $touched, pages $pages, rss $rss MiB"
[[ $touched == *KiB && $pages == 0 ]] && ((rss > 30)) || { echo "this has changed" && exit 1; }
echo "as recorded"
