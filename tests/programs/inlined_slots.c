// Per-channel sample slots: filled each round, reset every few rounds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NSLOTS 8
#define SLOT_CAP 16u

struct slot {
    uint16_t used;
    uint16_t peak;
    uint32_t sum;
    uint32_t dropped;
    uint32_t cells[SLOT_CAP];
};

struct board {
    struct slot slots[NSLOTS];
    unsigned rounds;
};

static uint32_t lcg(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

static inline void slot_reset(struct slot *s)
{
    if (s->used > s->peak)
        s->peak = s->used;
    s->used = 0;
    s->sum = 0;
}

static inline void slot_add(struct slot *s, uint32_t v)
{
    if (s->used == SLOT_CAP) {
        s->dropped++;
        return;
    }
    s->cells[s->used++] = v;
    s->sum += v;
}

int main(int argc, char **argv)
{
    uint32_t seed = 77u + (uint32_t)argc;
    unsigned resets = 0, adds = 0;
    uint32_t check = 0;

    (void)argv;
    struct board *b = calloc(1, sizeof *b);
    if (!b)
        return 1;

    for (int round = 0; round < 60 + argc; round++) {
        uint32_t in[NSLOTS];
        for (int i = 0; i < NSLOTS; i++)
            in[i] = lcg(&seed) & 0x3ff;
        for (int i = 0; i < NSLOTS; i++) {
            slot_add(&b->slots[i], in[i]);
            adds++;
        }
        b->rounds++;
        if (round % 5 == 4 && round < 40) {
            for (int i = 0; i < NSLOTS; i++) {
                check ^= b->slots[i].sum + (uint32_t)i;
                slot_reset(&b->slots[i]);
                resets++;
            }
        }
    }

    unsigned dropped = 0, peak = 0;
    for (int i = 0; i < NSLOTS; i++) {
        dropped += b->slots[i].dropped;
        if (b->slots[i].peak > peak)
            peak = b->slots[i].peak;
        check = check * 31 + b->slots[i].cells[b->slots[i].used - 1];
    }
    fprintf(stderr, "rounds %u dropped %u peak %u check %08x\n",
            b->rounds, dropped, peak, check);
    free(b);
    printf("slot_reset %u\nslot_add %u\n", resets, adds);
    return 0;
}
