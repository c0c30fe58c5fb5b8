#!/usr/bin/env bash
# perf record -F counts more page faults in a short burst than there were
#
# Seen with perf 6.1.176 (Debian 12, linux-perf 6.1.176-1). A program writes to 20,000 pages, which takes some 10 to 50 ms.
# `perf stat` and `perf record -c 1` count each of its faults. `perf record -F 1000` (its default is a frequency, too) takes
# 5 to 12 samples of them; each says how many events it stands for, and perf report adds these up to its "Event count
# (approx.)". Their sum was 22,000 to 200,000: nearly always more than there were, up to ten times as many, and another
# number each time. Whoever reads the growth of a short-lived process from such a profile takes it for larger than it was.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q linux-perf=6.1.176-1 >/dev/null 2>&1
dpkg -x linux-perf_*.deb .
cat >program.c <<'C'
#include <sys/mman.h>
int main(void) {
  unsigned long size = 20000 * 4096ul;
  char *block = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(block, size, MADV_NOHUGEPAGE);
  for (unsigned long at = 0; at < size; at += 4096) block[at] = 1;
}
C
gcc -O1 program.c -o program
perf=$(find "$folder/usr" -path '*bin/perf*' -type f -perm -u+x -name 'perf*' | head -n 1)
"$perf" --version
# Prints the samples of `perf record MODE` and the sum of the events that they stand for.
record() {
  "$perf" record -q "$@" -e page-faults:u -o data ./program
  "$perf" script -i data -F period 2>/dev/null | awk '{ sum += $1 } END { print NR, sum }'
}
faults=$("$perf" stat -x, -e page-faults:u ./program 2>&1 | awk -F, '/page-faults/ { print $1 }')
read -r samples sum < <(record -c 1)
echo "perf stat: $faults faults; perf record -c 1: $samples samples that stand for $sum"
over=0
for _ in 1 2 3 4 5 6 7; do
  read -r few stands < <(record -F 1000)
  echo "perf record -F 1000: $few samples that stand for $stands"
  ((stands < faults * 12 / 10)) || over=$((over + 1))
done
((sum <= faults + 100 && sum >= faults - 100 && over >= 4)) || { echo "this has changed" && exit 1; }
echo "as recorded"
