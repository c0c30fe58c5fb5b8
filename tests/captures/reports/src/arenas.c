// malloc with several arenas, each with free blocks, and blocks that are mapped individually.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
static void *work(void *unused) { for (int i = 0; i < 100; i++) { void *p = malloc(3000); if (i % 2) free(p); } malloc(200000); return 0; }
int main(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
  void *kept[1000];
  for (int i = 0; i < 1000; i++) kept[i] = malloc(i);
  for (int i = 0; i < 1000; i += 2) free(kept[i]);
  malloc(1 << 20);
  malloc_stats();
  malloc_info(0, stdout);
  return 0;
}
