// A thread maps SIZE MiB of pages that the kernel holds already and ends at once: thread_maps_and_ends SIZE
// flags: -O0 -pthread
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t bytes;
static int file;

static void *map(void *unused) {
  return mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
}

int main(int argc, char **argv) {
  pthread_t thread;
  char *written;
  bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20;
  file = memfd_create("pages", 0);
  if (ftruncate(file, bytes)) return 1;
  written = mmap(NULL, bytes, PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  munmap(written, bytes);
  pthread_create(&thread, NULL, map, NULL);  // here
  pthread_join(thread, NULL);
  sleep(2);
  return 0;
}
