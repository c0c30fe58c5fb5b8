/* A cache whose misses the compiler puts elsewhere, with padding in front of code that only jumps reach. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 16u

struct line {
    unsigned number, uses, length;
    int valid;
    char text[60];
};

struct cache {
    struct line lines[SLOTS];
    unsigned most, misses, refused, dropped;
};

static inline const char *fetch(struct cache *cache, unsigned number)
{
    struct line *line = &cache->lines[number % SLOTS];
    if (line->valid && line->number == number) {
        line->uses++;
        return line->text;
    }
    if (number > cache->most) {
        cache->refused++;
        return "";
    }
    if (line->valid)
        cache->dropped += line->length;
    int n = snprintf(line->text, sizeof line->text, "line %u ", number);
    memset(line->text + n, '.', number % 40);
    line->length = (unsigned)n + number % 40;
    line->text[line->length] = 0;
    line->number = number;
    line->uses = 1;
    line->valid = 1;
    cache->misses++;
    return line->text;
}

static unsigned walk(unsigned at, unsigned long *state)
{
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    unsigned r = (unsigned)(*state >> 59);
    return r == 0 ? at + 190 : r < 12 ? at : r < 22 && at > 0 ? at - 1 : at + 1;
}

int main(int argc, char **argv)
{
    struct cache *cache = calloc(1, sizeof *cache);
    unsigned long state = 98u + (unsigned)argc, shown = 0;
    unsigned fetched = 0, at = 0;

    (void)argv;
    if (!cache)
        return 1;
    cache->most = 160;
    for (int key = 0; key < 180; key++) {
        at = walk(at, &state);
        shown += strlen(fetch(cache, at));
        fetched++;
        if (at > 160)
            at = 3;
    }
    for (unsigned top = at; top < at + 24; top++) {
        shown = shown * 7 + (unsigned char)fetch(cache, top)[5];
        fetched++;
        if (top == 160)
            break;
    }
    fprintf(stderr, "%s|\n", fetch(cache, at & 7));
    fetched++;
    fprintf(stderr, "%lu %u %u %u\n", shown, cache->misses, cache->refused, cache->dropped);
    printf("fetch %u\n", fetched);
    return 0;
}
