#!/usr/bin/env bash
# A Python breakpoint whose stop() returns False is counted again when a signal comes while gdb steps over it
#
# Seen with gdb 13.1 (Debian 12, 13.1-3). A program calls a function ten times under a timer of 1 ms. A breakpoint that
# stops, with "continue" typed each time, is hit ten times. A gdb.Breakpoint whose stop() returns False (the documented
# way to only look) is called many more times for the same ten calls: the step over it is postponed by the signal, and
# the handler returns to the breakpoint, which is met again. gdb's hit count counts these too. Whoever counts calls in
# stop(), as profilers written in gdb's Python do, gets a number that depends on the signals of the program.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 >/dev/null 2>&1
dpkg -x gdb_*.deb .
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long ticks;
static void tick(int number) { (void)number; ticks++; }
__attribute__((noinline)) void turn(int number) { __asm__ volatile("" ::"r"(number)); }
int main(void) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, 0);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, 0);
  for (int i = 0; i < 10; i++) {
    turn(i);
    struct timespec pause = {0, 5000000};
    while (nanosleep(&pause, &pause)) {}
  }
  puts("10 calls");
}
C
gcc -g -O1 program.c -o program
cat >stop.py <<'P'
import gdb

class Look(gdb.Breakpoint):
    calls = 0
    def stop(self):
        Look.calls += 1
        return False

look = Look("turn")
gdb.execute("run")
print("returning False: stop() was called", Look.calls, "times")
P
cat >silent.py <<'P'
import gdb

point = gdb.Breakpoint("turn")
gdb.execute("run")
while gdb.selected_thread() is not None:
    gdb.execute("continue")
P
"${gdb[@]}" --version | head -n 1
handle=(-ex 'handle SIGALRM nostop noprint pass' -ex 'set pagination off')
again=$("${gdb[@]}" "${handle[@]}" -x stop.py ./program | sed -n 's/.*called \([0-9]*\) times/\1/p')
stops=$("${gdb[@]}" "${handle[@]}" -x silent.py ./program | grep -c 'Breakpoint 1, turn') || true
echo "10 calls: $stops stops; stop() that returns False was called $again times"
((stops == 10 && again > 10)) || { echo "this has changed" && exit 1; }
echo "as recorded"
