/* A function that is called in a loop, by itself, and by the handler of a timer's signals; it counts its calls.

   A call that the handler interrupts at its first instruction and leaves counts, too. Words: where the handler's stack is, "usual", "apart" or "in-main"; how the handler ends, "returns" or "jumps". */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { CALLS = 8 };

static volatile int calls[2], ended[2], helped, ticks, is_handling, jumps; /* [1]: the handler's */
static char apart[1 << 16];
static sigjmp_buf back;

__attribute__((noinline)) static void helps(void)
{
    helped++;
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void turn(int deeper)
{
    calls[is_handling]++;
    if (deeper)
        turn(deeper - 1);
    ended[is_handling]++;
    __asm__ volatile("" ::: "memory");
}

static void *interrupted_at(const ucontext_t *context)
{
#ifdef __aarch64__
    return (void *)context->uc_mcontext.pc;
#else
    return (void *)context->uc_mcontext.gregs[REG_RIP];
#endif
}

/* Changes a register that C code does not: functions of the C library do, in a handler as anywhere. */
static void use_mask_register(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        __asm__ volatile("kxnorw %k1, %k1, %k1");
#endif
}

static void handler(int number, siginfo_t *info, void *context)
{
    (void)info;
    if (is_handling || ticks >= CALLS)
        return;
    is_handling = number != 0;
    use_mask_register();
    ticks++;
    if (ticks % 2)
        turn(ticks % 4 == 1);
    else
        helps();
    is_handling = 0;
    if (jumps) {
        calls[1] += interrupted_at(context) == (void *)turn;
        siglongjmp(back, 1);
    }
}

int main(int words, char **word)
{
    char inner[1 << 16];
    stack_t other = {.ss_sp = words > 1 && !strcmp(word[1], "apart") ? apart : inner, .ss_size = sizeof inner};
    int is_usual = words < 2 || !strcmp(word[1], "usual");
    if (!is_usual)
        sigaltstack(&other, 0);
    jumps = words > 2 && !strcmp(word[2], "jumps");
    struct sigaction action = {
        .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART | (is_usual ? 0 : SA_ONSTACK)
    };
    sigaction(SIGALRM, &action, 0);
    struct itimerval each = {{0, 1000}, {0, 1000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, 0);
    volatile int i = 0;
    sigsetjmp(back, 1);
    while (i < CALLS) {
        i++;
        turn(0);
        turn(0);
        turn(2);
        for (volatile int wait = 0; wait < 1000000; wait++)
            ;
    }
    while (ticks < CALLS)
        ;
    setitimer(ITIMER_REAL, &none, 0);
    printf("%d calls, %d ended, %d helped\n", calls[0] + calls[1], ended[0] + ended[1], helped);
    return 0;
}
