#!/usr/bin/env bash
# The first line of a gperftools heap profile counts no mmap, though its rows do
#
# Seen with gperftools 2.10 (Debian 12, libgoogle-perftools4 2.10-1). With HEAP_PROFILE_MMAP=true the heap profiler also
# records memory that is mapped. The rows of the profile then hold the 100 MiB of malloc, the 50 MiB that the program
# maps and what tcmalloc maps itself, but the totals in the header ("heap profile: …") count the 100 MiB only. A reader
# that takes the header for a checksum refuses a valid file, and one that prints it leaves out what was mapped.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libgoogle-perftools4=2.10-1 libtcmalloc-minimal4=2.10-1 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
library=$(find "$folder/usr/lib" -name 'libtcmalloc.so.4')
cat >program.c <<'C'
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  char *block = malloc(100 << 20);
  memset(block, 1, 100 << 20);
  char *mapped = mmap(0, 50 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mapped[0] = block[0];
  return 0;
}
C
gcc -g -O0 program.c -o program
HEAP_PROFILE_MMAP=true HEAPPROFILE=$folder/profile LD_PRELOAD=$library ./program 2>/dev/null
file=$(printf '%s\n' profile.*.heap | sort | tail -n 1)
header=$(sed -n '1s/^heap profile: *[0-9]*: *\([0-9]*\) .*/\1/p' "$file")
rows=$(awk 'NR > 1 && /@ 0x/ { sub(/:$/, "", $1); bytes += $2 } /^MAPPED_LIBRARIES/ { exit } END { print bytes }' "$file")
echo "gperftools 2.10: header $header bytes in use, sum of the rows $rows bytes"
((header > 100000000 && header < 110000000 && rows - header > 50000000)) || { echo "this has changed" && exit 1; }
echo "as recorded"
