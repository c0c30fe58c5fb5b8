#!/usr/bin/env bash
# With "set scheduler-locking on", gdb lets a thread run that the stepped line creates, until that line is done
#
# Seen with gdb 13.1 (Debian 12, 13.1-3). A line creates a thread that counts, and sleeps 0.2 s. The manual says that with
# the lock on "only the current thread may run when the inferior is resumed". The new thread counts for as long as the line
# takes, and is held from the next stop on. Whoever locks the scheduler to see what one thread does to shared data, or to
# memory, sees what both have done.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q gdb=13.1-3 >/dev/null 2>&1
dpkg -x gdb_*.deb .
gdb=("$folder/usr/bin/gdb" --data-directory="$folder/usr/share/gdb" -nx -q -batch -iex 'set debuginfod enabled off')
cat >program.c <<'C'
#include <pthread.h>
#include <unistd.h>
volatile long count;
static void *work(void *unused) {
  for (;;) count++;
  return unused;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, work, 0), usleep(200000);
  usleep(200000);
  return 0;
}
C
gcc -g -O0 program.c -o program -pthread
"${gdb[@]}" --version | head -n 1
ran=0 later=0
for _ in 1 2 3; do
  counts=$("${gdb[@]}" -ex 'break 10' -ex run -ex 'set scheduler-locking on' -ex next -ex 'printf "count %ld\n", count' \
    -ex next -ex 'printf "count %ld\n", count' -ex kill ./program 2>/dev/null | sed -n 's/^count //p')
  read -r first second <<<"${counts//$'\n'/ }"
  echo "with the lock on: the new thread counted to $first in the line that creates it, $((second - first)) more in the next one"
  ((first == 0)) || ran=$((ran + 1))
  later=$((later + second - first))
done
((ran == 3 && later == 0)) || { echo "this has changed" && exit 1; }
echo "as recorded"
