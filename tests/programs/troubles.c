// What can happen to a program while it is being stepped; the first argument says which.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t ready;
static volatile int ticks, steps, wants_it;
static volatile char *nothing;

static void on_signal(int number) { ticks += number != 0; }

static void *holder(void *unused) {
    pthread_mutex_lock(&held);
    pthread_barrier_wait(&ready);
    while (!wants_it) usleep(1000); // however slowly gdb gets there
    usleep(200000);
    pthread_mutex_unlock(&held);
    pause();
    return unused;
}

static void *sleeper(void *unused) {
    pthread_barrier_wait(&ready);
    for (;;) pause();
    return unused;
}

static void *spinner(void *flag) {
    pthread_barrier_wait(&ready);
    usleep(100000);
    *(volatile int *)flag = 1;
    pause();
    return NULL;
}

static void *toucher(void *pages) {
    for (int i = 0; i < 100; i++) ((volatile char *)pages)[i * 4096] = 1;
    return NULL;
}

static pthread_t start(void *(*body)(void *), void *argument, int count) {
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, count + 1);
    for (int i = 0; i < count; i++) pthread_create(&thread, NULL, body, argument);
    pthread_barrier_wait(&ready);
    return thread;
}

static void go(const char *what) {
    static volatile int flag;
    steps++;
    if (!strcmp(what, "killed")) {
        kill(getpid(), SIGKILL);
    } else if (!strcmp(what, "exits")) {
        exit(3);
    } else if (!strcmp(what, "segv")) {
        *nothing = 1;
    } else if (!strcmp(what, "usr1")) {
        raise(SIGUSR1);
    } else if (!strcmp(what, "fork")) {
        if (fork() == 0) _exit(0);
        wait(NULL);
    } else if (!strcmp(what, "vfork")) {
        if (vfork() == 0) _exit(0);
        wait(NULL);
    } else if (!strcmp(what, "exec")) {
        execl("/proc/self/exe", "troubles", "none", NULL);
    } else if (!strcmp(what, "mutex")) {
        pthread_mutex_lock((wants_it = 1, &held));
    } else if (!strcmp(what, "join")) {
        pthread_t thread;
        pthread_barrier_init(&ready, NULL, 1);
        pthread_create(&thread, NULL, (void *(*)(void *))pthread_barrier_wait, &ready);
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "begin")) {
        pthread_t thread;
        pthread_create(&thread, NULL, toucher, mmap(0, 409600, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), pthread_join(thread, NULL);
    } else if (!strcmp(what, "spin")) {
        while (!flag) steps++;
    } else if (!strcmp(what, "stuck")) {
        static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&never);
        pthread_mutex_lock(&never);
    }
    steps++;
    steps++;
    steps++;
    if (!strcmp(what, "spin0")) start(spinner, (void *)&flag, 1);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "none";
    signal(SIGUSR1, on_signal);
    if (!strcmp(what, "alarm")) {
        struct itimerval often = {{0, 2000}, {0, 2000}};
        signal(SIGALRM, on_signal);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (!strcmp(what, "mutex")) start(holder, NULL, 1);
    if (!strcmp(what, "many") || !strcmp(what, "stuck")) start(sleeper, NULL, !strcmp(what, "many") ? 60 : 1);
    if (!strcmp(what, "hundreds")) start(sleeper, NULL, 200);
    if (argc > 2) start(sleeper, NULL, 1); // "beside"
    if (!strcmp(what, "spin")) go("spin0");
    go(what);
    return 0;
}
