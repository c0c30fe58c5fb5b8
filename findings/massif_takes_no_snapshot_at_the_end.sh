#!/usr/bin/env bash
# massif's last snapshot is not the end of the program
#
# Seen with valgrind 3.19.0 (Debian 12, 1:3.19.0-1). A program allocates 200 blocks of 1 MiB while it computes, frees all
# of them at once, and returns. memcheck says "in use at exit: 0 bytes". The last of massif's detailed snapshots still
# holds about 200 MiB and no later one exists, because massif takes snapshots by the clock (instructions), and the
# frees take almost no time. So the end of the curve in ms_print or massif-visualizer is not what the program ended
# with, and "never freed" cannot be read off it; --time-unit=B, whose clock is bytes allocated and freed, shows the fall.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q valgrind=1:3.19.0-1 >/dev/null 2>&1
dpkg -x valgrind_*.deb .
export VALGRIND_LIB=$folder/usr/libexec/valgrind
valgrind=$folder/usr/bin/valgrind
cat >program.c <<'C'
#include <stdlib.h>
int main(void) {
  static char *blocks[200];
  volatile long sum = 0;
  for (int i = 0; i < 200; i++) {
    blocks[i] = malloc(1 << 20);
    for (long k = 0; k < 400000; k++) sum += k;
  }
  for (int i = 0; i < 200; i++) free(blocks[i]);
  return 0;
}
C
gcc -g -O1 program.c -o program
last() { awk -F= '/^mem_heap_B=/ { bytes = $2 } END { print bytes }' "$1"; }
"$valgrind" --version
"$valgrind" -q --tool=massif --massif-out-file=by-time ./program
"$valgrind" -q --tool=massif --time-unit=B --massif-out-file=by-bytes ./program
at_exit=$("$valgrind" ./program 2>&1 | sed -n 's/.*in use at exit: \([0-9,]*\) bytes.*/\1/p')
echo "memcheck: in use at exit: $at_exit bytes"
echo "massif: last snapshot by instructions $(last by-time) bytes, by bytes $(last by-bytes) bytes"
[[ $at_exit == 0 && $(last by-time) -gt 190000000 && $(last by-bytes) -lt 20000000 ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
