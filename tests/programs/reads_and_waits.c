// Reads from a pipe that another thread writes into.
#include <pthread.h>
#include <unistd.h>

static int ends[2];

static void *writer(void *unused) {
    usleep(20000);
    return write(ends[1], "x", 1) == 1 ? unused : NULL;
}

int main(void) {
    pthread_t thread;
    char letter;
    if (pipe(ends)) return 1;
    pthread_create(&thread, NULL, writer, NULL);
    long got = read(ends[0], &letter, 1);
    return got == 1 ? 0 : 1;
}
