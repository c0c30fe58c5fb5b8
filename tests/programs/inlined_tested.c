// Calls of which compilers know ahead what they would test first: in copies, repeated, or in a loop.
#include <stdio.h>
#include <stdlib.h>

struct slot { unsigned used, peak, dropped; unsigned long sum; unsigned char cells[16]; };
struct log { int is_verbose; long notes, sum; };

__attribute__((noinline)) static void say(int v) { fprintf(stderr, "%d\n", v); }

// Its test is known for the second of two calls, and its count is increased by two at once.
static inline void note(struct log *l, int v) {
  if (l->is_verbose)
    say(v);
  l->notes++;
  l->sum += v;
}

__attribute__((noinline)) static void notes(struct log *l, const int *v, int n) {
  for (int i = 0; i < 4; i++)
    note(l, v[i]);
  for (int i = 0; i < n; i++)
    note(l, v[i]);
}

// Nothing is left of a second call.
static inline void reset(struct slot *s) {
  if (s->used > s->peak)
    s->peak = s->used;
  s->used = 0;
  s->sum = 0;
}

__attribute__((noinline)) static void resets(struct slot *s) {
  for (int i = 0; i < 3; i++)
    reset(s);
}

// Each call goes one of two ways, of which some are known.
static inline void put(struct slot *s, int v) {
  if (s->used == sizeof s->cells) {
    s->dropped++;
    return;
  }
  s->cells[s->used++] = v;
}

__attribute__((noinline)) static void puts_all(struct slot *s, int n) {
  s->used = sizeof s->cells;
  put(s, 1);
  put(s, 2);
  s->used = 0;
  put(s, 3);
  for (int i = 0; i < n; i++)
    put(s, i == 0 ? 7 : i);
  if (n & 1)
    put(s, n);
  else
    put(s, 2 * n);
}

// The first call, and others, do nothing.
static inline void visit(const struct slot *before, struct slot *now) {
  if (!before)
    return;
  now->sum += before->used;
}

__attribute__((noinline)) static void visits(struct slot *s, int n) {
  const struct slot *before = NULL;
  for (int i = 0; i < n; i++) {
    visit(before, &s[i]);
    before = &s[i];
  }
}

// No compiler knows anything of it.
static inline void add(struct slot *s, unsigned v) {
  if (v > s->peak)
    s->peak = v;
  s->cells[v % 16]++;
  s->sum += v;
}

int main(int argc, char **argv) {
  static const int values[] = {3, 1, 4, 1, 5, 9, 2, 6};
  struct slot *s = calloc(8, sizeof *s);
  struct log l = {argc > 3, 0, 0};
  unsigned seed = argc;
  long noted = 0, reset_ = 0, put_ = 0, visited = 0, added = 0;
  (void)argv;
  for (int i = 0; i < 8; i++) {
    s[i].used = i + argc;
    resets(&s[i]), reset_ += 3;
    notes(&l, values, i), noted += 4 + i;
    puts_all(&s[i], i), put_ += 4 + i;
    visits(s, i), visited += i;
  }
  for (int i = 0; i < 50; i++) {
    seed = seed * 1664525u + 1013904223u;
    add(&s[seed >> 29], seed >> 16), added++;
  }
  fprintf(stderr, "%u %lu %ld %ld %u\n", s[3].peak, s[2].sum, l.notes, l.sum, s[1].dropped);
  free(s);
  printf("note %ld\nreset %ld\nput %ld\nvisit %ld\nadd %ld\n", noted, reset_, put_, visited, added);
}
