/* makes_threads COUNT: COUNT threads, one after the other, each shorter than a blink. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *nothing(void *unused) { return unused; }

int main(int argc, char **argv) {
    for (int left = argc > 1 ? atoi(argv[1]) : 100; left > 0; left--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
    usleep(300000);
    return 0;
}
