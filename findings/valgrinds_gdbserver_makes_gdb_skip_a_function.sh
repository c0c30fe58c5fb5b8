#!/usr/bin/env bash
# Under valgrind, two breakpoints that lie one byte apart make gdb skip the function at the second
#
# Seen with valgrind 3.19.0 and gdb 13.1 (Debian 12, 1:3.19.0-1 and 13.1-3). A function ends in "ret", an instruction of one
# byte, and the next one follows at once, as is usual at -O1. With a breakpoint at that "ret" and one at the next function, that
# function is never executed: valgrind's gdbserver reports the address of the breakpoint, gdb expects the one behind an
# inserted "int3" wherever it knows a breakpoint one byte before, moves the thread back, and the "ret" there returns at once.
# The program goes on without the call, and the breakpoint counts no hit. Either breakpoint alone does no harm, nor do
# hardware breakpoints.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 valgrind=1:3.19.0-1 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
export VALGRIND_LIB=$folder/usr/libexec/valgrind
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
#include <stdio.h>
int calls, others;
__asm__(".text; .globl other; other: incl others(%rip); .globl last; last: ret; .globl turn; turn: incl calls(%rip); ret");
void other(void), turn(void);
int main(void) {
  for (int i = 0; i < 5; i++) other(), turn();
  printf("calls: %d\n", calls);
}
C
gcc -g -O1 program.c -o program
"$folder/usr/bin/valgrind" --version
"${gdb[@]}" --version | head -n 1
calls() {
  "$folder/usr/bin/valgrind" --tool=none -q --vgdb=yes --vgdb-error=0 --vgdb-prefix="$folder/pipe" ./program >out 2>/dev/null &
  local program=$!
  sleep 3
  local words=()
  for place in "${@:2}"; do words+=(-ex "$1 $place if 0"); done
  "${gdb[@]}" -ex "target remote | $folder/usr/bin/vgdb --vgdb-prefix=$folder/pipe --wait=20 --pid=$program" "${words[@]}" \
    -ex continue ./program >/dev/null 2>&1 || true
  wait "$program" || true
  sed -n 's/^calls: //p' out
}
one=$(calls break '*turn')
both=$(calls break '*last' '*turn')
hardware=$(calls hbreak '*last' '*turn')
echo "of 5 calls, $one are made with one breakpoint, $both with both, $hardware with both as hardware breakpoints"
[[ $one == 5 && $both == 0 && $hardware == 5 ]] || { echo "this has changed" && exit 1; }
echo "as recorded"
