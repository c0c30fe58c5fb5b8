// In each round one line waits for another thread in a loop of its own, which never sleeps.
#include <pthread.h>
#include <unistd.h>

static volatile int flag;

static void *raiser(void *unused) {
    for (;;) {
        if (!flag) flag = 1;
        usleep(1000);
    }
    return unused;
}

static void wait_for_flag(void) {
    while (!flag) {
    }
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, raiser, NULL);
    for (int round = 0; round < 3; round++) {
        flag = 0;
        wait_for_flag();
    }
    return 0;
}
