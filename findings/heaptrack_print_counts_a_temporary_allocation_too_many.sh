#!/usr/bin/env bash
# heaptrack_print counts one temporary allocation that was none
#
# Seen with heaptrack 1.4.0 (Debian 12, heaptrack 1.4.0-2). An allocation is temporary if it is freed before the next
# one. This program frees two blocks after it has allocated both, in the order of their allocation: there is none.
# heaptrack_print says 'temporary memory allocations: 1', and lists it under the first allocation of the recording,
# that of libstdc++'s start, which lives until the end. After a free it takes number 0 for 'no allocation is the last',
# and 0 is also the number of that first allocation: where its free follows another free, it counts as temporary.
# In reports the row is small; a count of temporaries that should be zero is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q heaptrack=1.4.0-2 libheaptrack=1.4.0-2 libboost-iostreams1.74.0=1.74.0+ds1-21 \
  libboost-program-options1.74.0=1.74.0+ds1-21 libboost-filesystem1.74.0=1.74.0+ds1-21 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
export LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu
cat >frees.c <<'C'
#include <stdlib.h>
int main(void) {
    char *volatile first = malloc(10), *volatile second = malloc(20);
    free(first);
    free(second);
    return 0;
}
C
gcc -g -O0 -o frees frees.c
usr/bin/heaptrack -o recording ./frees >log 2>&1
usr/bin/heaptrack_print --print-peaks 0 --print-allocators 0 -f recording.* >report 2>/dev/null
counted=$(sed -n 's/^temporary memory allocations: \([0-9]*\).*/\1/p' report)
first=$(grep -m1 -A2 '^1 temporary allocations of 1' report | grep -o 'libstdc++[.so0-9]*' || true)
echo "temporary memory allocations: $counted (by the program: 0), in ${first:-?}"
[[ $counted == 1 && $first == libstdc++* ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
