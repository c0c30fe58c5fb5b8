/* Two functions, of which one ends in an instruction of one byte, right before the other begins. */
#include <stdio.h>

int calls, others;

#ifdef __x86_64__
__asm__(".text\n.globl other\n.type other,@function\nother:\tincl others(%rip)\n.globl last\nlast:\tret\n.size other,.-other\n"
        ".globl turn\n.type turn,@function\nturn:\tincl calls(%rip)\n\tret\n.size turn,.-turn\n");
void other(void), turn(void);
#else
__attribute__((noinline)) void other(void)
{
    others++;
    __asm__ volatile(".globl last\nlast:");
}
__attribute__((noinline)) void turn(void)
{
    calls++;
}
#endif

int main(void)
{
    for (int i = 0; i < 5; i++) {
        other();
        turn();
    }
    printf("%d calls, %d others\n", calls, others);
    return 0;
}
