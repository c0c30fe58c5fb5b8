/* Counts how often its registers are not what it has put into them, while a timer's signals come.

   The instruction at `turn` has the address of its operand relative to its own. Words: rounds, microseconds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile long ticks;
int place;

static void tick(int number)
{
    ticks += number != 0;
}

__attribute__((noinline)) static long sum_of_registers(void)
{
#ifdef __x86_64__
    long sum;
    __asm__ volatile("mov $1, %%rcx\n\tmov $2, %%rdx\n\tmov $3, %%rbx\n\tmov $4, %%rsi\n\tmov $5, %%rdi\n\t"
                     "mov $6, %%r8\n\tmov $7, %%r9\n"
                     ".globl turn\nturn:\tmovl place(%%rip), %%eax\n\t"
                     "add %%rdx, %%rcx\n\tadd %%rbx, %%rcx\n\tadd %%rsi, %%rcx\n\tadd %%rdi, %%rcx\n\t"
                     "add %%r8, %%rcx\n\tadd %%r9, %%rcx\n\tmov %%rcx, %0"
                     : "=r"(sum)
                     :
                     : "rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r9", "memory");
    return sum;
#else
    __asm__ volatile(".globl turn\nturn:" ::: "memory");
    return 28;
#endif
}

int main(int words, char **word)
{
    int rounds = words > 1 ? atoi(word[1]) : 2000, microseconds = words > 2 ? atoi(word[2]) : 400;
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval each = {{0, microseconds}, {0, microseconds}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &each, 0);
    int changed = 0;
    for (int i = 0; i < rounds; i++)
        changed += sum_of_registers() != 28;
    setitimer(ITIMER_REAL, &none, 0);
    printf("%d rounds, %d changed\n", rounds, changed);
    return 0;
}
