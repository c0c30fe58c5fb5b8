/* SIGSEGV as a write barrier, as collectors of garbage have it: the handler makes the page writable. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGES = 30, PAGE = 4096 };

static volatile int calls;

__attribute__((noinline)) static void turn(char *at)
{
    calls++;
    mprotect(at, PAGE, PROT_READ | PROT_WRITE);
}

static void handler(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    turn((char *)((unsigned long)info->si_addr & ~(PAGE - 1ul)));
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    char *area = mmap(0, PAGES * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PAGES; i++)
        area[i * PAGE] = 1;
    printf("%d calls\n", calls);
    return 0;
}
