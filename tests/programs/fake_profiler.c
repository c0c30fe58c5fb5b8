// Plays gperftools' heap profiler: its dump opens the file that the first argument names.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *where;

int IsHeapProfilerRunning(void) { return 1; }
void HeapProfilerStart(const char *prefix) { (void)prefix; }
void HeapProfilerStop(void) {}
char *GetHeapProfile(void) { return 0; }

void HeapProfilerDump(const char *reason) {
  (void)reason;
  int file = open(where, O_RDONLY | O_NONBLOCK);
  if (file >= 0) close(file);
}

int main(int count, char **arguments) {
  where = arguments[count - 1];
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    free(malloc(100));
    usleep(1000);
  }
}
