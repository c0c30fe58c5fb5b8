#!/usr/bin/env bash
# Reading the 'address' of a value in gdb's Python calls the program's malloc, if the compiler has put that array nowhere
#
# Seen with gdb 13.1 (Debian 12, 13.1-3) and gcc 12.2. A program at -O2 has a static array whose elements the compiler
# knows: the debug information says that it is optimized out. gdb.Value.address, by its documentation the address of a
# value or None, is None for a number that is optimized out. For the array gdb calls malloc in the program, and gives the
# address of that block: each time another one, that nobody frees. Meanwhile, all threads of the program run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 >/dev/null 2>&1
dpkg -x gdb_*.deb .
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
static const long weights[512] = {3, 5, 7};
static const long limit = 7;
__attribute__((noinline)) void here(long number) { __asm__ volatile("" ::"r"(number)); }
int main(int argc, char **argv) {
  free(malloc(10000));
  size_t before = mallinfo2().uordblks;
  here(weights[1] * argc + limit);
  printf("%zu bytes were allocated meanwhile\n", mallinfo2().uordblks - before);
}
C
gcc -g -O2 program.c -o program
cat >look.py <<'P'
import gdb

for name in ("limit", "weights"):
    values = [gdb.lookup_static_symbol(name).value() for _ in range(3)]
    places = {None if one.address is None else int(one.address) for one in values}
    print(name, "has", "no address" if places == {None} else f"{len(places)} address" + "es" * (len(places) > 1))
P
"${gdb[@]}" --version | head -n 1
said=$("${gdb[@]}" -ex 'break here' -ex run -x look.py -ex continue ./program 2>/dev/null | grep 'address\|meanwhile')
echo "$said"
allocated=$(sed -n 's/ bytes were.*//p' <<<"$said")
[[ $(./program) == "0 bytes"* && $said == *"limit has no address"*"weights has 3 addresses"* ]] && ((allocated >= 3 * 4096)) ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
