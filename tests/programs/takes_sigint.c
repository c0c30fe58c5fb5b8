// Treats SIGINT as the first argument says; two threads hand each other the turn, and memory grows, until `done` is set.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

volatile int taken, rounds, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static sigset_t only;

static void on_signal(int number) { taken += number == SIGINT; }

static void *waiter(void *unused) {
    int number;
    while (sigwait(&only, &number) == 0) taken++;
    return unused;
}

static void *reader(void *unused) {
    struct signalfd_siginfo info;
    int fd = signalfd(-1, &only, 0);
    while (read(fd, &info, sizeof info) > 0 || errno == EINTR) taken++;
    return unused;
}

static void take_turn(int mine) {
    pthread_mutex_lock(&lock);
    while (turn != mine && !done) pthread_cond_wait(&changed, &lock);
    turn = !mine;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void *other(void *unused) {
    while (!done) {
        usleep(20000);
        take_turn(1);
    }
    pthread_mutex_lock(&lock);  // or it comes before the other thread waits for it, which has looked at `done` already
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void use_memory(void) {
    static char *volatile block;
    block = malloc(1 << 20);
    memset(block, 1, 1 << 20);
    rounds++;
}

// Prints which signals this process was started with blocked (B) and ignored (I).
static void show_start(void) {
    sigset_t blocked;
    struct sigaction action;
    sigprocmask(0, NULL, &blocked);
    printf("started with");
    for (int number = 1; number < 32; number++) {
        if (sigismember(&blocked, number)) printf(" B%d", number);
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN) printf(" I%d", number);
    }
    printf(".\n");
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "default";
    if (!strcmp(how, "start")) {
        show_start();
        return 0;
    }
    pthread_t thread;
    sigemptyset(&only);
    sigaddset(&only, SIGINT);
    if (!strcmp(how, "handled")) signal(SIGINT, on_signal);
    if (!strcmp(how, "ignored")) signal(SIGINT, SIG_IGN);
    if (strcmp(how, "default") && strcmp(how, "handled") && strcmp(how, "ignored")) pthread_sigmask(SIG_BLOCK, &only, NULL);
    if (!strcmp(how, "sigwait")) pthread_create(&thread, NULL, waiter, NULL);
    if (!strcmp(how, "signalfd")) pthread_create(&thread, NULL, reader, NULL);
    pthread_create(&thread, NULL, other, NULL);
    printf("ready\n");
    fflush(stdout);
    while (!done) {
        take_turn(0);
        use_memory();
    }
    printf("ended after %d signals\n", taken);
    return 0;
}
