/* A threaded server under load that notices every disturbance: interrupted calls, signals, lost requests.
 *   steady_server MEGABYTES
 * Each line on its standard input is answered with one of figures; it ends with its input. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static volatile long interrupted, signals, requests, answers, wrong;
static volatile double longest; /* milliseconds between two looks at the clock */

static void on_child(int number) { signals += number != 0; }

static void note(long result) {
    if (result < 0 && errno == EINTR) __atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void *waits_in_epoll(void *end) {
    int set = epoll_create1(0), fd = (int)(long)end;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    for (;;) {
        long value, ready = epoll_wait(set, &event, 1, -1);
        note(ready);
        if (ready == 1 && read(fd, &value, sizeof value) == sizeof value) {
            value *= 2;
            note(write(fd, &value, sizeof value));
        }
    }
    return end;
}

static void *asks(void *end) {
    int fd = (int)(long)end;
    for (long value = 1;; value++) {
        long answer = 0;
        requests++;
        note(write(fd, &value, sizeof value));
        ssize_t got = read(fd, &answer, sizeof answer);
        note(got);
        if (answer == 2 * value) answers++; else wrong++;
        if (value % 64 == 0) usleep(500);
    }
    return end;
}

static void *sleeps(void *unused) {
    struct timespec t = {0, 20000000};
    for (;;) note(nanosleep(&t, NULL));
    return unused;
}

static void *polls(void *unused) {
    for (;;) note(poll(NULL, 0, 7));
    return unused;
}

static void *allocates(void *unused) {
    void *blocks[500] = {0};
    for (unsigned i = 0;; i++) {
        free(blocks[i % 500]);
        blocks[i % 500] = malloc(20 + i % 3000);
        if (i % 1000 == 0) usleep(1000);
    }
    return unused;
}

static void *looks(void *unused) {
    double before = now();
    for (;;) {
        double t = now();
        if (t - before > longest) longest = t - before;
        before = t;
        usleep(100);
    }
    return unused;
}

int main(int argc, char **argv) {
    size_t size = (argc > 1 ? atol(argv[1]) : 1) << 20;
    char line[16];
    int pair[2];
    pthread_t id;
    signal(SIGCHLD, on_child);
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t done = 0; done < size; done += 1000) memset(malloc(984), 1, 984);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pthread_create(&id, NULL, waits_in_epoll, (void *)(long)pair[0]);
    pthread_create(&id, NULL, asks, (void *)(long)pair[1]);
    pthread_create(&id, NULL, sleeps, NULL);
    pthread_create(&id, NULL, polls, NULL);
    pthread_create(&id, NULL, allocates, NULL);
    pthread_create(&id, NULL, looks, NULL);
    printf("pid %d\nready\n", getpid());
    while (read(0, line, sizeof line) > 0) {
        printf("interrupted %ld signals %ld lost %ld wrong %ld longest_us %ld answers %ld\n", interrupted, signals,
               (long)(requests - answers - wrong > 1), wrong, (long)(longest * 1000), answers);
        longest = 0;
    }
    return 0;
}
