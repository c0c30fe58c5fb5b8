/* Blocks that are pools of a program's own, or look a little like some.
 *   heap_pools arenas|filled|none
 * arenas: as perl's, of objects that other blocks lead to; filled: as nginx's, with the addresses of its free part and
 * of its end; none: arrays of pointers, and a block that is led to very often. Prints the bytes of the pools, as malloc
 * counts them, then waits for its standard input to end. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POOLS = 200, SIZE = 4088, OBJECT = 24, USERS = 4000 };
struct pool {
    char *free, *end;
    struct pool *next;
};
struct user {
    char *one, *other;
};

static void *pools[POOLS];
static struct user *users[USERS];
static char *shared;

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "none";
    long bytes = 0;
    shared = calloc(1, 2000);
    for (int i = 0; i < POOLS; i++) {
        pools[i] = calloc(1, SIZE);
        bytes += malloc_usable_size(pools[i]) + sizeof(size_t);
        if (!strcmp(kind, "filled")) {
            struct pool *pool = pools[i];
            *pool = (struct pool){(char *)pool + 1000 + i, (char *)pool + SIZE, i ? pools[i - 1] : NULL};
        }
    }
    for (int i = 0; i < USERS; i++) {
        users[i] = calloc(1, sizeof *users[i]);
        users[i]->one = users[i]->other = shared;
        if (!strcmp(kind, "arenas")) {
            users[i]->one = (char *)pools[i % POOLS] + i % (SIZE / OBJECT) * OBJECT;
            users[i]->other = (char *)pools[(i + 1) % POOLS] + i / 7 % (SIZE / OBJECT) * OBJECT;
        } else if (!strcmp(kind, "none"))
            ((void **)pools[i % POOLS])[i / POOLS] = users[i];
    }
    int some = strcmp(kind, "none") != 0;
    printf("pools %d %ld\n", some ? POOLS : 0, some ? bytes : 0);
    printf("ready\n");
    fflush(stdout);
    while (read(0, &bytes, sizeof bytes) > 0) {}
    return 0;
}
