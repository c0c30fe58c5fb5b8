// Writes 64 MiB, which a process that is no thread shares (clone() with CLONE_VM), and stays for argv[1] milliseconds.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static char stack[1 << 16] __attribute__((aligned(16)));

static int watch(void *unused) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

int main(int count, char **arguments) {
    memset(malloc(64 << 20), 1, 64 << 20);
    if (clone(watch, stack + sizeof stack, CLONE_VM | SIGCHLD, 0) < 0)
        return 1;
    usleep((count > 1 ? atoi(arguments[1]) : 0) * 1000);
    return 0;
}
