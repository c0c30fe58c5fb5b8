/* Two functions, of which one ends in an instruction of one byte, right before the other begins.

   And a place that is one byte behind that to which a call returns. */
#include <stdio.h>

int calls, others, passes;

#ifdef __x86_64__
__asm__(".text\n.globl other\n.type other,@function\nother:\tincl others(%rip)\n.globl last\nlast:\tret\n.size other,.-other\n"
        ".globl turn\n.type turn,@function\nturn:\tincl calls(%rip)\n\tret\n.size turn,.-turn\n"
        ".globl within\n.type within,@function\nwithin:\tcall turn\n\tnop\n.globl passed\npassed:\tincl passes(%rip)\n"
        "\tret\n.size within,.-within\n");
void other(void), turn(void), within(void);
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
__attribute__((noinline)) void within(void)
{
    turn();
    __asm__ volatile(".globl passed\npassed:");
    passes++;
}
#endif

int main(void)
{
    for (int i = 0; i < 5; i++) {
        other();
        within();
    }
    printf("%d calls, %d others, %d passes\n", calls, others, passes);
    return 0;
}
