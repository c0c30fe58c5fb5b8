#!/usr/bin/env bash
# mallinfo2().uordblks counts freed blocks as in use while they are in the thread's cache
#
# Seen with glibc 2.36 (Debian 12, libc6 2.36-9+deb12u14). Of 7 blocks of 1,000 bytes that a program frees, mallinfo2()
# says that all are in use still, and malloc_stats() too: glibc's per-thread cache (tcache) takes up to seven of a size,
# and to the arena they are allocated. The eighth block freed is counted. So "in use" of a program with many threads and
# sizes may be some MiB above what the program holds, and a test that compares it with its own count must allow for
# that, or switch the cache off (GLIBC_TUNABLES=glibc.malloc.tcache_count=0), with which all is counted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libc6=2.36-9+deb12u14 >/dev/null 2>&1
dpkg -x libc6_*.deb .
libraries=$(dirname "$(find "$folder" -name libc.so.6)")
cat >program.c <<'C'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  void *blocks[8];
  setvbuf(stdout, NULL, _IONBF, 0);
  for (int i = 0; i < 8; i++) blocks[i] = malloc(1000);
  void *volatile last = malloc(1); /* else the eighth would be joined with the rest of the heap */
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 7; i++) free(blocks[i]);
  size_t seven = before - mallinfo2().uordblks;
  free(blocks[7]);
  size_t eight = before - mallinfo2().uordblks;
  printf("%zu %zu\n", seven, eight);
  return last == NULL;
}
C
gcc -O0 program.c -o program
run=("$libraries"/ld-linux-x86-64.so.2 --library-path "$libraries" ./program)
read -r seven eight < <("${run[@]}")
read -r seven_without eight_without < <(GLIBC_TUNABLES=glibc.malloc.tcache_count=0 "${run[@]}")
echo "glibc 2.36: 7 blocks freed: $seven bytes less in use; 8: $eight; without the cache $seven_without and $eight_without"
[[ "$seven $eight $seven_without $eight_without" == "0 1008 7056 8064" ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
