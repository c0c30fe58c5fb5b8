/* Waits for ever in a system call of an inlined function, beside a thread that sleeps; prints what the call returns. */
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int word;

static inline __attribute__((always_inline)) long wait_for(int *at) {
#ifdef __x86_64__
    register long timeout __asm__("r10") = 0;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(SYS_futex), "D"(at), "S"(0x80), "d"(0), "r"(timeout)
                     : "rcx", "r11", "memory");
    return answer;
#else
    return syscall(SYS_futex, at, 0x80, 0, NULL);
#endif
}

static void *sleeps(void *argument) {
    pause();
    return argument;
}

__attribute__((noinline)) void waits(void) {
    printf("the call has returned %ld\n", wait_for(&word));
    fflush(stdout);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps, NULL);
    waits();
    return 0;
}
