#!/usr/bin/env bash
# A block that jemalloc's heap profiler samples takes five pages, and counts as four
#
# Seen with jemalloc 5.3.0 (Debian 12, libjemalloc2 5.3.0-1). To see every allocation one sets lg_prof_sample:0. From
# then on each block of 248 bytes is an extent of its own: 16 KiB, the smallest large class, and a page for its random
# start. 10,000 such blocks: stats.allocated is 156 MiB in place of 2, stats.active 195 MiB, though malloc_usable_size()
# and the profile itself still say 256 bytes a block. Who profiles in order to find out why a heap is large or fragmented
# reads the figures of another heap than the one in question.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libjemalloc2=5.3.0-1 >/dev/null 2>&1
dpkg -x libjemalloc2_*.deb .
library=$(echo "$folder"/usr/lib/*/libjemalloc.so.2)
cat >program.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef int ask_t(const char *, void *, size_t *, void *, size_t);
int main(void) {
    static char *kept[10000];
    for (int n = 0; n < 10000; n++) memset(kept[n] = malloc(248), 1, 248);
    ask_t *ask = (ask_t *)dlsym(RTLD_DEFAULT, "mallctl");
    unsigned long epoch = 1, allocated = 0, active = 0;
    size_t size = sizeof epoch;
    ask("epoch", 0, 0, &epoch, size);
    ask("stats.allocated", &allocated, &size, 0, 0);
    ask("stats.active", &active, &size, 0, 0);
    printf("%lu %lu\n", allocated >> 20, active >> 20);
    return kept[9999][0] != 1;
}
C
gcc -O1 program.c -o program -ldl
read -r plain_allocated plain_active < <(LD_PRELOAD=$library ./program)
read -r allocated active < <(LD_PRELOAD=$library MALLOC_CONF=prof:true,lg_prof_sample:0 ./program)
echo "not profiled: allocated $plain_allocated MiB, active $plain_active MiB"
echo "every block sampled: allocated $allocated MiB, active $active MiB"
((plain_allocated <= 3 && plain_active <= 4 && allocated >= 150 && active >= 190)) || { echo "this has changed" && exit 1; }
echo "as recorded"
