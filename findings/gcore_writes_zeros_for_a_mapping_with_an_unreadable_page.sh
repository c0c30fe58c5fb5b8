#!/usr/bin/env bash
# gdb's gcore saves zeros for all of a mapping, stacks too, if one of its pages can't be read
#
# Seen with gdb 13.1 (Debian 12, 13.1-3). A private mapping of three pages of a file of two: the first has numbers, the
# third lies behind the file's end. generate-core-file warns of the mapping, says "Saved corefile" and ends with status 0.
# In the core the first page is zeros, and nothing in the core says that they aren't the program's. So it is with a mapping
# that has a guard page by MADV_GUARD_INSTALL (Linux 6.13), as stacks of glibc 2.42 have, and the stacks beside it. Who
# reads such a core sees empty stacks and null pointers, and blocks that nothing leads to.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 >/dev/null 2>&1
dpkg -x gdb_*.deb .
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
long *whole, *cut;
static long *map(const char *name, long pages) {
  int file = open(name, O_RDWR | O_CREAT, 0600);
  if (ftruncate(file, pages * 4096)) _exit(1);
  long *at = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  *at = 4711;
  return at;
}
int main(void) {
  whole = map("three", 3), cut = map("two", 2);
  pause();
}
C
gcc -g -O0 program.c -o program
"${gdb[@]}" --version | head -n 1
status=0
"${gdb[@]}" -ex 'break pause' -ex run -ex 'printf "live %ld %ld\n", *whole, *cut' -ex 'generate-core-file core.here' \
  -ex kill ./program >log 2>&1 || status=$?
saved=$(grep -c '^Saved corefile' log || true)
"${gdb[@]}" -ex 'printf "core %ld %ld\n", *whole, *cut' ./program core.here >>log 2>&1
read -r live < <(sed -n 's/^live //p' log)
read -r core < <(sed -n 's/^core //p' log)
echo "the first words of a mapping that can be read, and of one that can't at its end: $live in the process, $core in the core (status $status, saved: $saved)"
[[ "$live; $core; $status; $saved" == "4711 4711; 4711 0; 0; 1" ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
