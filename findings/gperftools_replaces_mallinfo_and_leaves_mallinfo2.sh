#!/usr/bin/env bash
# With gperftools' tcmalloc mallinfo() counts the program's blocks, and mallinfo2() says that there are none
#
# Seen with gperftools 2.10 (Debian 12, libtcmalloc-minimal4 2.10-1). The library replaces malloc(), free() and mallinfo(),
# but not mallinfo2(), by which glibc has replaced that since 2.33 because its fields are too small. So in one process
# mallinfo().uordblks is 9 MiB, and mallinfo2().uordblks, of glibc's unused heap, 0. A program that was changed to the new
# function, as compilers advise by a warning, exports a heap of 0 bytes wherever tcmalloc is preloaded.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libtcmalloc-minimal4=2.10-1 >/dev/null 2>&1
dpkg -x libtcmalloc-minimal4_*.deb .
library=$(echo "$folder"/usr/lib/*/libtcmalloc_minimal.so.4)
cat >program.c <<'C'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  static char *blocks[1000];
  for (int n = 0; n < 1000; n++) memset(blocks[n] = malloc(10000), 1, 10000);
  struct mallinfo old = mallinfo();
  struct mallinfo2 new = mallinfo2();
  printf("%d %zu\n", old.uordblks >> 20, new.uordblks >> 20);
  return blocks[999][0] != 1;
}
C
gcc -O1 -w program.c -o program
read -r old new < <(LD_PRELOAD=$library ./program)
read -r old_glibc new_glibc < <(./program)
echo "in use, by mallinfo() and mallinfo2(): tcmalloc $old and $new MiB, glibc $old_glibc and $new_glibc MiB"
[[ "$old $new $old_glibc $new_glibc" == "9 0 9 9" ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
