#!/usr/bin/env bash
# Memory that the kernel fills on request becomes resident without a page-fault event
#
# Seen with perf 6.1.176 (Debian 12, linux-perf 6.1.176-1). A program makes 64 MiB resident: by writing to each page, by
# mmap with MAP_POPULATE, by mlock(), by MADV_POPULATE_WRITE. The resident set grows by the same in each case, but the
# software event page-faults counts some 16,000 events in the first and fewer than 300 in the others. So a profile of
# page faults (perf record -e page-faults, which shows who makes a process grow) has no sample of that growth, and
# nothing in it says so. Most database servers and many runtimes populate or lock their memory.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q linux-perf=6.1.176-1 >/dev/null 2>&1
dpkg -x linux-perf_*.deb .
cat >program.c <<'C'
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
enum { SIZE = 64 << 20 };
static long resident(void) {
  long size, pages;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) exit(2);
  fclose(file);
  return pages >> 8;
}
int main(int count, char **words) {
  int way = count > 1 ? atoi(words[1]) : 0;
  long before = resident();
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (way == 1 ? MAP_POPULATE : 0);
  char *block = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
  madvise(block, SIZE, MADV_NOHUGEPAGE);
  int failed = way == 2 ? mlock(block, SIZE) : way == 3 ? madvise(block, SIZE, MADV_POPULATE_WRITE) : 0;
  if (way == 0) for (long at = 0; at < SIZE; at += 4096) block[at] = 1;
  printf("%ld\n", resident() - before);
  return failed != 0;
}
C
gcc -O1 program.c -o program
perf=$(find "$folder/usr" -path '*bin/perf*' -type f -perm -u+x -name 'perf*' | head -n 1)
"$perf" --version
names=('written page by page' MAP_POPULATE 'mlock()' MADV_POPULATE_WRITE)
changed=
for way in 0 1 2 3; do
  grown=$("$perf" stat -x, -e page-faults -o events ./program "$way")
  events=$(awk -F, '/page-faults/ { print $1 }' events)
  echo "${names[way]}: resident +$grown MiB, $events page-fault events"
  ((grown >= 63 && (way == 0 ? events > 16000 : events < 1000))) || changed=yes
done
[[ -z $changed ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
