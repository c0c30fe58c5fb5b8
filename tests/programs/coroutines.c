/* Coroutines on stacks of their own, each suspended in a call of turn() and in an inlined call while the others run.

   It counts both. With the word "leaves" the last call of turn() in each coroutine jumps out of it. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { COROUTINES = 3, CALLS = 6, STACK = 1 << 16 };

static ucontext_t scheduler, coroutine[COROUTINES];
static char stacks[COROUTINES][STACK];
static volatile int calls, inlined, returned, left;
static int leaves;
static jmp_buf out[COROUTINES];

static void suspend(int number)
{
    swapcontext(&coroutine[number], &scheduler);
}

__attribute__((noinline)) static void turn(int number, int is_last)
{
    calls++;
    suspend(number);
    if (leaves && is_last)
        longjmp(out[number], 1);
    __asm__ volatile("" ::: "memory");
}

static inline __attribute__((always_inline)) void within(int number)
{
    inlined++;
    suspend(number);
    __asm__ volatile("" ::: "memory");
}

static void run(int number)
{
    for (volatile int i = 0; i < CALLS; i++) {
        if (setjmp(out[number]))
            left++;
        else {
            turn(number, i == CALLS - 1);
            returned++;
        }
        within(number);
    }
    for (;;)
        suspend(number);
}

int main(int count, char **words)
{
    leaves = count > 1 && !strcmp(words[1], "leaves");
    for (int number = 0; number < COROUTINES; number++) {
        getcontext(&coroutine[number]);
        coroutine[number].uc_stack.ss_sp = stacks[number];
        coroutine[number].uc_stack.ss_size = STACK;
        makecontext(&coroutine[number], (void (*)(void))run, 1, number);
    }
    for (int round = 0; round < COROUTINES * (2 * CALLS + 2); round++)
        swapcontext(&scheduler, &coroutine[round % COROUTINES]);
    printf("%d calls, %d inlined, %d left\n", calls, inlined, left);
    return 0;
}
