/* Folders that are weighed: two functions call each other, and the compiler splits one of them. */
#include <stdio.h>
#include <stdlib.h>

struct folder {
    struct folder *first, *next;
    unsigned files, kept, weighed;
};

static unsigned long weighs, insides;

static inline unsigned weigh_inside(struct folder *folder);

/* the size of a folder with all that is in it; what is above eight files a folder is dropped */
static inline unsigned weigh(struct folder *folder)
{
    if (!folder)
        return 0;
    unsigned size = weigh_inside(folder);
    if (folder->files > 8) {
        folder->kept += 8;
        size += folder->files - 8;
        folder->files = 8;
        folder->weighed++;
    }
    return size + folder->files;
}

static inline unsigned weigh_inside(struct folder *folder)
{
    unsigned size = weigh(folder->first);
    return size + weigh(folder->next);
}

static struct folder *make(unsigned depth, unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    if (!depth || *seed >> 29 == 0)
        return NULL;
    struct folder *folder = calloc(1, sizeof *folder);
    if (!folder)
        abort();
    folder->files = *seed >> 27;
    folder->first = make(depth - 1, seed);
    folder->next = make(depth - 1, seed);
    insides++;
    weighs += 2;
    return folder;
}

int main(int argc, char **argv)
{
    unsigned seed = 5u + (unsigned)argc, size = 0, rounds = 3;
    struct folder *root = make(7, &seed);

    (void)argv;
    for (unsigned round = 0; round < rounds; round++)
        size += weigh(root);
    fprintf(stderr, "%u in %u\n", size, root ? root->weighed : 0);
    printf("weigh %lu\nweigh_inside %lu\n", rounds * (weighs + 1), rounds * insides);
    return 0;
}
