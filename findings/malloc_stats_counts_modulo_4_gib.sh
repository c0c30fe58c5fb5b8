#!/usr/bin/env bash
# malloc_stats() of glibc counts modulo 4 GiB, beside a maximum that it counts in full
#
# Seen with glibc 2.36 (Debian 12, libc6 2.36-9+deb12u14), 64 bits. A program has one block of 5 GiB. malloc_stats()
# prints "system bytes = 1073881088" and "in use bytes = 1073746576" for all of it, arenas and mapped blocks together,
# and below it "max mmap bytes = 5368713216", which is right. The first two are what is left of the sum in 32 bits: who
# reads them off a log takes the program for one of 1 GiB. malloc_info() and mallinfo2() of the same library are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libc6=2.36-9+deb12u14 >/dev/null 2>&1
dpkg -x libc6_*.deb .
cat >program.c <<'C'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  volatile char *block = malloc(5ul << 30); /* not touched: it takes no memory */
  malloc_stats();
  struct mallinfo2 found = mallinfo2();
  printf("mallinfo2 %zu\n", found.uordblks + found.hblkhd);
  return block == 0;
}
C
gcc -O0 program.c -o program
lib=$folder/lib/x86_64-linux-gnu
"$lib/ld-linux-x86-64.so.2" --library-path "$lib" ./program >said 2>&1
used=$(sed -n '/^Total/,$s/^in use bytes *= *//p' said)
most=$(sed -n 's/^max mmap bytes *= *//p' said)
right=$(sed -n 's/^mallinfo2 //p' said)
echo "glibc 2.36, one block of 5368709120 bytes: malloc_stats in use $used, max mmap $most; mallinfo2 $right"
((right > 5368709120 && most > 5368709120 && right - used == 4294967296)) || { echo "this has changed" && exit 1; }
echo "as recorded"
