// Reads from a pipe that another thread writes into.
#include <pthread.h>
#include <unistd.h>

static int ends[2];
static volatile int wants_it;

static void *writer(void *unused) {
    while (!wants_it) usleep(1000); // however slowly gdb gets there
    return write(ends[1], "x", 1) == 1 ? unused : NULL;
}

int main(void) {
    pthread_t thread;
    char letter;
    if (pipe(ends)) return 1;
    pthread_create(&thread, NULL, writer, NULL);
    long got = read((wants_it = 1, ends[0]), &letter, 1);
    return got == 1 ? 0 : 1;
}
