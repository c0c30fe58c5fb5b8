/* Its main thread ends; another one keeps more at each call of grown(). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *kept[3];

__attribute__((noinline)) void grown(int count)
{
    __asm__ volatile("" : : "r"(count));
}

static void *work(void *unused)
{
    usleep(200000); /* until the main thread has ended, in all likelihood */
    for (int i = 0; i < 3; i++) {
        kept[i] = malloc(100000);
        memset(kept[i], 1, 100000);
        grown(i);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    syscall(SYS_exit, 0);
}
