/* ends_threads JOINED UNJOINED RUNNING: threads that end and are joined, that end and are not, and that stay. With FORKED
 * in the environment a child waits in the parent's place: libc caches the stacks of all threads that the child lacks. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int touched;
static int alive;
static pthread_barrier_t together;

static void *works(void *stays) {
    char used[32768];
    memset(used, 1, sizeof used);
    touched += used[touched & 0xff];
    if (!stays) {
        pthread_barrier_wait(&together); /* so that none of them has the stack of another */
        return NULL;
    }
    for (;;) pause();
}

static int kernels_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count - 2;
}

/* Starts COUNT threads that end, and waits until the kernel has only those that stay. */
static void run(int count, int joins) {
    pthread_t ids[1000];
    pthread_barrier_init(&together, NULL, count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&ids[i], NULL, works, NULL)) exit(1);
    pthread_barrier_wait(&together);
    for (int i = 0; joins && i < count; i++) pthread_join(ids[i], NULL);
    while (kernels_threads() > alive) usleep(1000);
}

int main(int count, char **words) {
    int joined = atoi(words[1]), unjoined = atoi(words[2]), running = count > 3 ? atoi(words[3]) : 0;
    pthread_t id;
    char line[8];
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < running; i++) pthread_create(&id, NULL, works, words);
    alive = 1 + running;
    if (unjoined) run(unjoined, 0);
    if (joined) run(joined, 1);
    if (getenv("FORKED")) {
        int child = fork();
        if (child) return waitpid(child, NULL, 0) < 0;
    }
    printf("pid %d\nready\n", (int)getpid());
    return read(0, line, sizeof line) < 0;
}
