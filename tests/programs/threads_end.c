// Threads allocate, and end before the program does: glibc gives back their stacks by madvise.
#include <pthread.h>
#include <stdlib.h>

static void *work(void *unused) {
    free(malloc(300000));
    return unused;
}

int main(void) {
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}
