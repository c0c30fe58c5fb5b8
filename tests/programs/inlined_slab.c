// Slab of fixed slots: acquire from a free list, release, sweep what is expired.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 24

struct slot { int next; int owner; uint32_t stamp; void *data; };
struct slab { struct slot s[SLOTS]; int free; unsigned live, high; };

static inline void slot_release(struct slab *b, int i)
{
    struct slot *s = &b->s[i];
    free(s->data);
    s->data = NULL;
    s->owner = -1;
    s->next = b->free;
    b->free = i;
    b->live--;
}

static inline int slot_acquire(struct slab *b, int owner, uint32_t now, size_t size)
{
    int i = b->free;
    if (i < 0)
        return -1;
    struct slot *s = &b->s[i];
    b->free = s->next;
    s->owner = owner;
    s->stamp = now;
    s->data = malloc(size);
    if (++b->live > b->high)
        b->high = b->live;
    return i;
}

static inline unsigned slab_sweep(struct slab *b, uint32_t before, unsigned *released)
{
    unsigned n = 0;
    for (int i = 0; i < SLOTS; i++)
        if (b->s[i].owner >= 0 && b->s[i].stamp < before) {
            slot_release(b, i);
            n++;
        }
    *released += n;
    return n;
}

int main(int argc, char **argv)
{
    struct slab *b = calloc(1, sizeof *b);
    unsigned acquired = 0, released = 0, sweeps = 0;
    uint32_t seed = 99u + (uint32_t)argc, now = 0;
    (void)argv;
    if (!b)
        return 1;
    b->free = -1;
    for (int i = SLOTS - 1; i >= 0; i--) {
        b->s[i].owner = -1;
        b->s[i].next = b->free;
        b->free = i;
    }
    for (int step = 0; step < 150; step++) {
        seed = seed * 747796405u + 2891336453u;
        now++;
        acquired++;
        int i = slot_acquire(b, step, now, 16 + (seed >> 26));
        if (i < 0 || (seed & 0x700) == 0) {
            slab_sweep(b, now - 10, &released);
            sweeps++;
        }
        if ((seed >> 28) == 5 && i >= 0) {
            slot_release(b, i);
            released++;
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (b->s[i].owner >= 0) {
            slot_release(b, i);
            released++;
        }
    fprintf(stderr, "live %u high %u\n", b->live, b->high);
    free(b);
    printf("slot_acquire %u\nslot_release %u\nslab_sweep %u\n", acquired, released, sweeps);
    return 0;
}
