#!/usr/bin/env bash
# A process that shares the program's memory takes gdb's breakpoints out of the program, which is stopped no more
#
# Seen with gdb 13.1 (Debian 12, 13.1-3). A program calls a function ten times, and before the third call starts a
# process by clone() with CLONE_VM and SIGCHLD, without CLONE_VFORK: a watchdog, as some servers and sandboxes have. The
# kernel reports it as a fork. gdb says "Detaching after fork from child process", and removes its breakpoints from the
# memory of that child, which is the program's: it takes them for inserted in the program from then on. 'break' stops
# twice, as a user takes it because the function was called twice. 'hbreak', whose breakpoints are in no memory, and
# 'break' beside 'catch fork', at whose stop gdb inserts all breakpoints again, stop ten times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 >/dev/null 2>&1
dpkg -x gdb_*.deb .
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static char stack[65536] __attribute__((aligned(16)));
__attribute__((noinline)) void turn(int number) { __asm__ volatile("" ::"r"(number)); }
static int watch(void *unused) { (void)unused; return 0; }
int main(void) {
  for (int i = 0; i < 10; i++) {
    if (i == 2) {
      int child = clone(watch, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
      waitpid(child, 0, 0);
    }
    turn(i);
  }
  puts("10 calls");
}
C
gcc -g -O1 program.c -o program
cat >stops.py <<'P'
import gdb

while gdb.selected_thread() is not None:
    gdb.execute("continue")
P
stops() { "${gdb[@]}" -ex 'set pagination off' "$@" -x stops.py ./program 2>/dev/null | grep -c '^\(Temporary b\|B\)reakpoint [12], turn'; }
"${gdb[@]}" --version | head -n 1
soft=$(stops -ex 'break turn' -ex run) || true
hard=$(stops -ex 'break main' -ex run -ex 'hbreak turn') || true
caught=$(stops -ex 'break turn' -ex 'catch fork' -ex run) || true
echo "10 calls: break stops at $soft, hbreak at $hard, break beside 'catch fork' at $caught"
((soft == 2 && hard == 10 && caught == 10)) || { echo "this has changed" && exit 1; }
echo "as recorded"
