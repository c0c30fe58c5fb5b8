#!/usr/bin/env bash
# jemalloc's stats.active and stats.metadata both have the threads' caches, so their sum exceeds stats.resident
#
# Seen with jemalloc 5.3.0 (Debian 12, libjemalloc2 5.3.0-1). By its manual, stats.resident comprises all pages
# dedicated to metadata, the pages of active allocations, and unused dirty pages. With 200 threads that have freed one
# block each it is 16.6 MB, and stats.active + stats.metadata are 22.3: the memory of a thread's cache (28 KiB) is
# allocated by jemalloc for itself, so it is in stats.allocated and stats.active as blocks of the program are, and in
# stats.metadata as "internal". Who reports live memory as allocated, and overhead as metadata beside it, as exporters
# of these figures do, counts it twice; who takes allocated for the program's own blocks counts 5.7 MB that nobody asked for.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libjemalloc2=5.3.0-1 >/dev/null 2>&1
dpkg -x libjemalloc2_*.deb .
library=$(echo "$folder"/usr/lib/*/libjemalloc.so.2)
cat >program.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
typedef int ask_t(const char *, void *, size_t *, void *, size_t);
static pthread_barrier_t freed;
static unsigned long kilobytes(const char *name) {
  unsigned long value = 0;
  size_t size = sizeof value;
  ((ask_t *)dlsym(RTLD_DEFAULT, "mallctl"))(name, &value, &size, NULL, 0);
  return value / 1000;
}
static void *frees(void *nothing) {
  char *volatile block = malloc(100);
  free(block);
  pthread_barrier_wait(&freed);
  pause();
  return nothing;
}
int main(int count, char **words) {
  int threads = atoi(words[1]);
  pthread_barrier_init(&freed, NULL, threads + 1);
  for (int n = 0; n < threads; n++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, frees, NULL)) return 1;
  }
  pthread_barrier_wait(&freed);
  unsigned long epoch = 1;
  ((ask_t *)dlsym(RTLD_DEFAULT, "mallctl"))("epoch", NULL, NULL, &epoch, sizeof epoch);
  printf("%lu %lu %lu %lu\n", kilobytes("stats.allocated"), kilobytes("stats.active"), kilobytes("stats.metadata"),
         kilobytes("stats.resident"));
  fflush(stdout);
  _exit(count != 2);
}
C
gcc -O1 -pthread program.c -o program -ldl
read -r few _ < <(LD_PRELOAD=$library ./program 0)
read -r allocated active metadata resident < <(LD_PRELOAD=$library ./program 200)
echo "200 threads: allocated $allocated kB (without them $few), active $active kB, metadata $metadata kB;" \
  "active + metadata $((active + metadata)) kB, resident $resident kB"
((allocated - few >= 5000 && active + metadata - resident >= 5000)) || { echo "this has changed" && exit 1; }
echo "as recorded"
