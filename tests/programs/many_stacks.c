/* many_stacks N: N threads that sleep, and hardly any heap. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *sleeps(void *nothing) {
    char used[16384];
    used[0] = 1;
    __asm__ volatile("" : : "r"(used) : "memory");
    pause();
    return nothing;
}

__attribute__((noinline)) void all_there(void) { __asm__ volatile(""); }

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 100;
    for (int n = 0; n < threads; ++n) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, sleeps, NULL) != 0) return 1;
    }
    sleep(1);
    all_there();
    return 0;
}
