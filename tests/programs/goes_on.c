// flags: -pthread -ldl
// Three threads. For each byte on its standard input it loads a library, forks and starts a thread, and says so.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int ended;

__attribute__((noinline)) void never(void) { ended++; }

static void *sleeps(void *unused) {
  struct timespec span = {0, 3000000};
  while (!ended) nanosleep(&span, 0);
  return unused;
}

static void *ends(void *unused) { return unused; }

int main(int count, char **arguments) {
  pthread_t thread;
  char letter;
  setvbuf(stdout, 0, _IOLBF, 0);
  for (int i = 0; i < 2; i++) pthread_create(&thread, 0, sleeps, 0);
  if (count > 9) never();
  printf("ready\n");
  while (read(0, &letter, 1) == 1) {
    void *library = dlopen("libm.so.6", RTLD_NOW);
    pid_t child = fork();
    int status = -1;
    if (child == 0) _exit(0);
    waitpid(child, &status, 0);
    pthread_create(&thread, 0, ends, 0);
    pthread_join(thread, 0);
    printf("%s %d\n", library ? "loaded" : arguments[0], status);
    if (library) dlclose(library);
  }
  return 7;
}
