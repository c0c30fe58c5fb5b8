#!/usr/bin/env bash
# A gdb.execute() that fails in a breakpoint's stop() makes 'continue' return while the program runs, error caught or not
#
# Seen with gdb 13.1 (Debian 12, 13.1-3). A Python breakpoint's stop() tries a command that may fail, catches gdb.error,
# and returns False. The program is resumed, as it is to be, but the 'continue' that waits for it returns: of ten calls
# one or two are seen before the script goes on, and each further command says "Selected thread is running". With
# gdb.parse_and_eval() in place of gdb.execute() all ten are seen. gdb.execute() makes gdb ready for the next command
# once something has failed in it, in the middle of the program's run, too; the manual says only that an error is an
# exception there, which the script may catch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 >/dev/null 2>&1
dpkg -x gdb_*.deb .
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
__attribute__((noinline)) void turn(int number) { __asm__ volatile("" ::"r"(number)); }
int main(void) {
  for (int i = 0; i < 10; i++) turn(i);
}
C
gcc -g -O1 program.c -o program
cat >look.py <<'P'
import os

import gdb

class Look(gdb.Breakpoint):
    calls = 0
    def stop(self):
        Look.calls += 1
        try:
            if os.environ["HOW"] == "execute":
                gdb.execute("info symbol no_such_name", to_string=True)
            else:
                gdb.parse_and_eval("no_such_name")
        except gdb.error:
            pass
        return False

look = Look("turn")
gdb.execute("run")
print("seen", Look.calls)
print("then", "running" if "(running)" in gdb.execute("info threads", to_string=True) else "at its end")
P
"${gdb[@]}" --version | head -n 1
HOW=execute "${gdb[@]}" -x look.py ./program >executed 2>&1
HOW=evaluate "${gdb[@]}" -x look.py ./program >evaluated 2>&1
seen() { sed -n 's/^seen //p' "$1"; }
echo "10 calls: $(seen executed) seen by a stop() with a gdb.execute() that fails; the program is $(sed -n 's/^then //p' executed) then"
echo "          $(seen evaluated) by one with a gdb.parse_and_eval() that fails; it is $(sed -n 's/^then //p' evaluated)"
(($(seen executed) < 10 && $(seen evaluated) == 10)) && grep -q "^then running" executed ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
