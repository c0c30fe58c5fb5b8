// Says so when SIGTERM arrives and ends with status 7, or goes on: handles_term [stay]
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void note(int signal_number) { asked = signal_number; }

int main(int argc, char **argv) {
  const int stay = argc > 1 && strcmp(argv[1], "stay") == 0;
  struct sigaction action = {.sa_handler = note};
  sigaction(SIGTERM, &action, NULL);
  puts("ready");
  fflush(stdout);
  for (;;) {
    usleep(10000);
    if (!asked) continue;
    puts("asked to end");
    fflush(stdout);
    if (!stay) return 7;
    asked = 0;
  }
}
