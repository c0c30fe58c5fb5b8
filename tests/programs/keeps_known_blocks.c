/* Keeps known blocks beside freed ones, whatever malloc is, and prints how many and what the allocator itself counts.
   A line on standard input makes eight threads allocate and free without a pause. */
// flags: -O1 -pthread
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, BLOCKS = 6000, BLOCK = 5000, LARGES = 16, LARGE = 1 << 20, HELD = 500 };

int MallocExtension_GetNumericProperty(const char *, size_t *) __attribute__((weak));  /* gperftools' */

static void *blocks[BLOCKS], *larges[LARGES];

static void *touched(size_t size) {
  char *block = malloc(size);
  for (size_t at = 0; at < size; at += 512) block[at] = 1;
  return block;
}

/* Sizes below those of the kept blocks, and larger ones: the kept ones' class is the main thread's alone. */
static void *goes_on(void *number) {
  unsigned seed = (unsigned)(size_t)number;
  void *held[HELD] = {0};
  for (;;) {
    int place = rand_r(&seed) % HELD;
    free(held[place]);
    held[place] = touched(16 + rand_r(&seed) % (rand_r(&seed) % 50 ? 2000 : 3000) + (rand_r(&seed) % 90 ? 0 : 60000));
  }
  return 0;
}

/* Blocks that another thread has freed may wait for their owner. */
static void *frees(void *nothing) {
  (void)nothing;
  for (int i = 0; i < BLOCKS; ++i)
    if (i % 10 == 1) {
      free(blocks[i]);
      blocks[i] = 0;
    }
  return 0;
}

static void figures(void) {
  static const char *names[] = {"generic.current_allocated_bytes",    "generic.heap_size",
                                "tcmalloc.pageheap_free_bytes",       "tcmalloc.pageheap_unmapped_bytes",
                                "tcmalloc.central_cache_free_bytes",  "tcmalloc.transfer_cache_free_bytes",
                                "tcmalloc.thread_cache_free_bytes"};
  for (unsigned i = 0; MallocExtension_GetNumericProperty && i < sizeof names / sizeof *names; ++i) {
    size_t value = 0;
    MallocExtension_GetNumericProperty(names[i], &value);
    printf("%s %zu\n", names[i], value);
  }
}

int main(void) {
  static char output[4096], input[4096]; /* not from malloc, which may put them beside the blocks */
  setvbuf(stdout, output, _IOFBF, sizeof output);
  setvbuf(stdin, input, _IOFBF, sizeof input);
  char line[16];
  for (int i = 0; i < BLOCKS; ++i) blocks[i] = touched(BLOCK);
  for (int i = 0; i < LARGES; ++i) larges[i] = touched(LARGE);
  pthread_t thread;
  pthread_create(&thread, 0, frees, 0);
  pthread_join(thread, 0);
  for (int i = 0; i < BLOCKS; ++i)
    if (i % 10 > 1) {
      free(blocks[i]);
      blocks[i] = 0;
    }
  for (int i = 0; i < LARGES; ++i)
    if (i % 4) {
      free(larges[i]);
      larges[i] = 0;
    }
  printf("blocks %d %d\n", BLOCK, BLOCKS / 10);
  printf("larges %d %d\n", LARGE, LARGES / 4);
  printf("table %zu %d\ntable %zu %d\n", (size_t)blocks, BLOCKS, (size_t)larges, LARGES);
  figures();
  printf("ready\n");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    for (size_t i = 0; i < THREADS; ++i) pthread_create(&thread, 0, goes_on, (void *)(i + 1));
    usleep(50000);
    printf("busy\n");
    fflush(stdout);
  }
  return 0;
}
