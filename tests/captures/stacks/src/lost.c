/* Loses a list by its head, a tree by its middle and one block alone; holds one by a pointer to its inside. */
#include <stdlib.h>

struct node {
    struct node *next;
    char text[92];
};

static struct node *chain(int length) {
    struct node *head = NULL;
    for (int at = 0; at < length; at++) {
        struct node *node = calloc(1, sizeof *node);
        node->next = head;
        head = node;
    }
    return head;
}

static void *volatile kept, *volatile inside;

int main(void) {
    struct node *volatile list = chain(7);
    list = NULL;
    struct node *volatile holder = malloc(sizeof *holder);
    holder->next = chain(3);
    holder = NULL;
    void *volatile alone = malloc(1000);
    alone = NULL;
    kept = malloc(500);
    inside = (char *)malloc(64) + 8;
    return 0;
}
