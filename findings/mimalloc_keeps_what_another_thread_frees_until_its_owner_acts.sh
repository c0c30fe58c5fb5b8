#!/usr/bin/env bash
# mimalloc 2 keeps memory that another thread frees for as long as the thread that allocated it is idle
#
# Seen with mimalloc 2.0.9 (Debian 12, libmimalloc2.0 2.0.9+ds-2). One thread allocates 20,000 blocks of 5,000 bytes and
# waits; another frees all of them and calls mi_collect(true). Two seconds later the 99 MiB are resident still. A block
# freed by another thread goes to a list of its page, and counts as used there until the page's own thread allocates or
# collects; when that one calls mi_collect(true), 2 MiB are left. A worker that loads data, hands it on and then waits
# for the next request keeps it all, though no block is live, and neither mi_collect() of the thread that frees nor
# any purge delay changes it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libmimalloc2.0=2.0.9+ds-2 >/dev/null 2>&1
dpkg -x libmimalloc2.0_*.deb .
library=$(echo "$folder"/usr/lib/*/libmimalloc.so.2)
cat >program.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 20000, SIZE = 5000 };
static char *blocks[BLOCKS];
static pthread_barrier_t turn;
static void collect(void) { ((void (*)(bool))dlsym(RTLD_DEFAULT, "mi_collect"))(true); }
static long resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%*d %ld", &pages) != 1) return -1;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE) >> 20;
}
static void *allocates(void *nothing) {
  for (int n = 0; n < BLOCKS; n++) memset(blocks[n] = malloc(SIZE), 1, SIZE);
  pthread_barrier_wait(&turn);
  pthread_barrier_wait(&turn); /* idle meanwhile */
  collect();
  pthread_barrier_wait(&turn);
  pthread_barrier_wait(&turn);
  return nothing;
}
int main(void) {
  pthread_t thread;
  pthread_barrier_init(&turn, NULL, 2);
  pthread_create(&thread, NULL, allocates, NULL);
  pthread_barrier_wait(&turn);
  for (int n = 0; n < BLOCKS; n++) free(blocks[n]);
  collect();
  sleep(2);
  printf("%ld ", resident());
  pthread_barrier_wait(&turn);
  pthread_barrier_wait(&turn);
  printf("%ld\n", resident());
  fflush(stdout);
  _exit(0);
}
C
gcc -O1 -pthread program.c -o program -ldl
read -r idle collected < <(LD_PRELOAD=$library ./program)
echo "all freed by another thread: $idle MiB resident; after the owner's mi_collect(): $collected MiB"
((idle >= 95 && collected <= 6)) || { echo "this has changed" && exit 1; }
echo "as recorded"
