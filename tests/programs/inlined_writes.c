// Calls that write for certain, joined, cancelled, peeled, packed or taken out of loops.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define N 16
#define SEE __asm__ volatile("" ::: "memory")  // or nothing would be left of calls whose writes are not read
struct soa { int used[N]; int sum[N]; unsigned char flag[N]; long hits[N]; };
struct one { int n, m, last; long total; };
static long c_clear, c_bump, c_reset, c_open, c_close, c_mark, c_pick, c_tell, c_store, c_zero, c_spec, c_walk, c_swap;

static inline void clear(struct soa *s, int i) {
  s->used[i] = 0;
  s->sum[i] = 1;
}
static inline void bump(struct soa *s, int i) {
  s->used[i]++;
  s->sum[i] += i;
}
static inline void zero(struct soa *s, int i) {
  s->flag[i] = 0;
  s->hits[i] = 0;
}
static inline void reset(struct one *o) {
  o->total++;
  o->n = 0;
  o->m = 0;
}
static inline void opens(struct one *o) {
  o->n++;
  o->last = 1;
}
static inline void closes(struct one *o) {
  o->n--;
  o->last = 0;
}
static inline void mark(struct one *o, int v) {
  o->n++;
  o->last = v;
}
static inline void pick(struct one *o, int v) {
  o->m++;
  o->total += v;
}
static inline void tell(struct one *o, int v) {
  o->n += v;
  o->last = v;
}
static inline void store(struct one *o, int v) {
  o->m++;
  if (o->last < v)
    o->last = v;
}
static inline void spec(struct one *o, int v) {
  o->n = v;
  o->m++;
}
static inline void walk(struct one *o, const int *v, int n) {
  o->last = n;
  for (int i = 0; i < n; i++)
    o->total += v[i];
  o->n++;
}

__attribute__((noinline)) static void clears(struct soa *s) {
  for (int i = 0; i < 8; i++)
    clear(s, i);
}
__attribute__((noinline)) static void clears_more(struct soa *s, int n) {
  for (int i = 0; i < n; i++)
    clear(s, i);
}
__attribute__((noinline)) static void bumps(struct soa *s) {
  for (int i = 0; i < 8; i++)
    bump(s, i);
}
__attribute__((noinline)) static void bumps_more(struct soa *s, int n) {
  for (int i = 0; i < n; i++)
    bump(s, i);
}
__attribute__((noinline)) static void zeros(struct soa *s, int n) {
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < n; i++)
      zero(s, i);
}
__attribute__((noinline)) static void resets(struct one *o, int n) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < 3; k++)
      reset(&o[i]);
}
__attribute__((noinline)) static void resets_same(struct one *o, int n, int m) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < m; k++)
      reset(&o[i]);
}
__attribute__((noinline)) static void pairs(struct one *o, int n, int stop) {
  for (int i = 0; i < n; i++) {
    opens(o);
    if (i == stop)
      printf("-\n");
    closes(o);
  }
}
__attribute__((noinline)) static void marks(struct one *o, int v) {
  if (v & 1)
    mark(o, v);
  else
    mark(o, v + 1);
  mark(o, v);
  switch (v & 6) {
  case 0: mark(o, 3); break;
  case 2: mark(o, 4); break;
  case 4: mark(o, 3); break;
  }
}
__attribute__((noinline)) static void picks(struct one *o, const int *v, int n, int flag) {
  for (int i = 0; i < n; i++) {
    if (flag)
      pick(o, v[i]);
    else
      o->n ^= v[i];
  }
}
__attribute__((noinline)) static long tells(int n) {
  struct one *o = calloc(n, sizeof *o);
  long sum = 0;
  for (int i = 0; i < n; i++) {
    if (i == 0)
      o[i].m = 7;
    tell(&o[i], i);
    sum += o[i].n;
  }
  free(o);
  return sum;
}
__attribute__((noinline)) static void stores(struct one *o, const int *v, int n) {
  for (int i = 0; i + 1 < n; i += 2) {
    store(o, v[i]);
    store(o, v[i + 1]);
  }
}
__attribute__((noinline)) static void specs(struct one *o, int a) {
  o->n = 5;
  o->m = a;
  if (a & 2)
    spec(o, a);
}
__attribute__((noinline)) static void walks(struct one *o, const int *v, int n) {
  for (int i = 0; i < 3; i++)
    walk(&o[i], v, n & i);
}

// Its last round may be written without a branch.
static inline void swap(struct one *o, int v) {
  int old = o->n;
  o->n = v;
  o->last += old;
  o->m++;
}
__attribute__((noinline)) static void swaps(struct one *o, int n, int m) {
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < m; k++) {
      swap(o, k);
      c_swap++;
    }
    swap(o, i);
    c_swap++;
  }
  if (n & 1)
    swap(o, 1);
  else
    swap(o, 2);
  c_swap++;
}

int main(int argc, char **argv) {
  struct soa *s = calloc(1, sizeof *s);
  struct one *o = calloc(N, sizeof *o);
  int v[N];
  long sum = 0;
  (void)argv;
  for (int i = 0; i < N; i++)
    v[i] = i * argc + 3;
  for (int r = 0; r < 6; r++) {
    SEE;
    clears(s), c_clear += 8;
    SEE;
    clears_more(s, r + 5), c_clear += r + 5;
    SEE;
    bumps(s), c_bump += 8;
    SEE;
    bumps_more(s, r + 7), c_bump += r + 7;
    SEE;
    zeros(s, r + 2), c_zero += 2 * (r + 2);
    SEE;
    resets(o, r), c_reset += 3 * r;
    SEE;
    resets_same(o, r, 2 * r), c_reset += 2 * r * r;
    SEE;
    pairs(o, r, 3), c_open += r, c_close += r;
    SEE;
    marks(o, r), c_mark += 2 + ((r & 6) != 6);
    SEE;
    picks(o, v, r, r & 1), c_pick += r & 1 ? r : 0;
    SEE;
    sum += tells(r + 1), c_tell += r + 1;
    SEE;
    stores(o, v, r), c_store += r / 2 * 2;
    SEE;
    specs(o, r), c_spec += (r & 2) != 0;
    SEE;
    walks(o, v, N - 1), c_walk += 3;
  }
  for (int r = 0; r < 9; r++) {
    SEE;
    swaps(o, r, r & 3);
  }
  SEE;
  for (int i = 0; i < N; i++)
    sum += s->used[i] + s->sum[i] + s->hits[i] + s->flag[i] + o[i].n + o[i].m + o[i].last + o[i].total;
  fprintf(stderr, "%ld\n", sum);
  free(s);
  free(o);
  printf("clear %ld\nbump %ld\nzero %ld\nreset %ld\nopens %ld\ncloses %ld\nmark %ld\npick %ld\ntell %ld\nstore %ld\nspec %ld\nwalk %ld\nswap %ld\n",
         c_clear, c_bump, c_zero, c_reset, c_open, c_close, c_mark, c_pick, c_tell, c_store, c_spec, c_walk, c_swap);
}
