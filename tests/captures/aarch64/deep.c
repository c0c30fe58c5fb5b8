// Ends by a trap in inner(), called by work() and main(), whose return addresses are signed.
#include <stdlib.h>

struct node {
    struct node *next;
};

__attribute__((noinline)) static struct node *chain(int count) {
    struct node *head = 0;
    while (count--) {
        struct node *made = malloc(sizeof *made);
        made->next = head;
        head = made;
    }
    return head;
}

__attribute__((noinline)) int inner(int depth) {
    volatile int own[8] = {depth};
    struct node *kept = chain(depth); // in a register that work() uses, too
    if (depth)
        __builtin_trap();
    return own[0] + (kept != 0);
}

__attribute__((noinline)) int work(int count) {
    struct node *mine = chain(count); // in a register, which inner() saves
    int found = inner(count);
    return found + (mine->next != 0);
}

int main(void) {
    return work(3) + 1;
}
