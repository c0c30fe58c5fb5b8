#!/usr/bin/env bash
# At a breakpoint that does not stop, gdb changes a register of the program whenever a signal comes in between
#
# Seen with gdb 13.1 (Debian 12, 13.1-3), with its default settings. A program sets seven registers, reads a global variable
# and adds the registers up, 2000 times, under a timer of 0.4 ms. With "break *turn if 0" at the read, hundreds of sums are
# wrong. gdb executes a copy of the instruction elsewhere ("displaced stepping", on by default for a program on this
# machine); as the variable's address is relative to the instruction's, it puts that into a register, and when a signal
# comes before the copy was executed, it goes back without restoring the register. The program goes on with an address
# where its own value was, and whoever debugs it looks for a fault that only the debugger makes. With "set
# displaced-stepping off" no sum is wrong. gdb 14 restores it.
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
int place;
static volatile long ticks;
static void tick(int number) { ticks += number; }
__attribute__((noinline)) static long sum(void) {
  long all;
  __asm__ volatile("mov $1, %%rcx; mov $2, %%rdx; mov $3, %%rbx; mov $4, %%rsi; mov $5, %%rdi; mov $6, %%r8; mov $7, %%r9;"
                   ".globl turn; turn: movl place(%%rip), %%eax;"
                   "add %%rdx, %%rcx; add %%rbx, %%rcx; add %%rsi, %%rcx; add %%rdi, %%rcx; add %%r8, %%rcx; add %%r9, %%rcx;"
                   "mov %%rcx, %0" : "=r"(all) :
                   : "rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r9", "memory");
  return all;
}
int main(void) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, 0);
  struct itimerval every = {{0, 400}, {0, 400}};
  setitimer(ITIMER_REAL, &every, 0);
  int wrong = 0;
  for (int i = 0; i < 2000; i++) wrong += sum() != 28;
  printf("wrong: %d\n", wrong);
}
C
gcc -g -O1 program.c -o program
"${gdb[@]}" --version | head -n 1
wrong() { "${gdb[@]}" "$@" -ex 'break *turn if 0' -ex run ./program 2>/dev/null | sed -n 's/^wrong: //p'; }
alone=$(./program | sed 's/^wrong: //')
usual=$(wrong)
off=$(wrong -ex 'set displaced-stepping off')
echo "of 2000 sums are wrong: $alone alone, $usual under gdb, $off with 'set displaced-stepping off'"
((alone == 0 && usual > 0 && off == 0)) || { echo "this has changed" && exit 1; }
echo "as recorded"
