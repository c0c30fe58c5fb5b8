// Query-string builder: sb_pair -> sb_text/sb_char -> sb_room.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sb {
    char *s;
    size_t len, cap;
    unsigned grows;
};

static inline void sb_room(struct sb *b, size_t extra)
{
    if (b->len + extra + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 16;
        while (cap < b->len + extra + 1)
            cap += cap / 2;
        char *p = realloc(b->s, cap);
        if (!p)
            abort();
        b->s = p;
        b->cap = cap;
        b->grows++;
    }
}

static inline void sb_char(struct sb *b, char c)
{
    sb_room(b, 1);
    b->s[b->len++] = c;
    b->s[b->len] = '\0';
}

static inline void sb_text(struct sb *b, const char *t)
{
    size_t n = strlen(t);
    sb_room(b, n);
    memcpy(b->s + b->len, t, n + 1);
    b->len += n;
}

static inline void sb_pair(struct sb *b, const char *k, const char *v)
{
    sb_text(b, k);
    sb_char(b, '=');
    sb_text(b, v);
    sb_char(b, '&');
}

static const char *const keys[] = { "id", "page", "lang", "session", "q", "sort" };

int main(int argc, char **argv)
{
    struct sb b = { 0 };
    unsigned long pairs = 0, chars = 0, hash = 5381;
    unsigned seed = (unsigned)argc * 2654435761u;
    char val[16];

    (void)argv;
    for (int q = 0; q < 30; q++) {
        b.len = 0;
        sb_char(&b, '?');
        chars++;
        unsigned n = 1 + (seed >> 28) % 5;
        for (unsigned i = 0; i < n; i++) {
            seed = seed * 69069u + 1u;
            snprintf(val, sizeof val, "%x", seed >> (seed >> 27));
            sb_pair(&b, keys[(seed >> 20) % 6], val);
            pairs++;
        }
        for (const char *p = b.s; *p; p++)
            hash = (hash * 33) ^ (unsigned char)*p;
    }
    chars += 2 * pairs;             /* '=' and '&' of each pair */

    fprintf(stderr, "last %s grows %u cap %zu hash %lx\n", b.s, b.grows, b.cap, hash);
    free(b.s);
    printf("sb_pair %lu\nsb_char %lu\n", pairs, chars);
    return 0;
}
