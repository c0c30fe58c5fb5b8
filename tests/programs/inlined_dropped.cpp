// Functions of which compilers leave out what they do in some of their calls.
#include <cstdio>
#include <cstdlib>
#include <cstring>

static long noted, total, depth, hits, sum;
#define OPAQUE __asm__ volatile("" ::: "memory")

// An increase is dropped in front of an assignment.
static inline void note(int v) { noted++; total += v; }

__attribute__((noinline)) static long warms_up(int c) {
  note(c);
  note(c + 1);
  noted = 0;
  for (int i = 0; i < 40; i++) note(i);
  return 42;
}

// An increase and a decrease undo each other.
static inline void enter() { depth++; }
static inline void leave() { depth--; }

__attribute__((noinline)) static void work(int v) { sum += v * depth; OPAQUE; }

__attribute__((noinline)) static long nests() {
  long calls = 0;
  for (int i = 0; i < 50; i++) {
    enter(); calls++;
    if (i % 3 == 0) work(i); else sum += i;
    leave();
    enter(); calls++;
    sum ^= i;
    leave();
  }
  return calls;
}

// Two arms end alike, of which one is a call.
static inline void hit() { hits++; }

__attribute__((noinline)) static long merges() {
  long calls = 0;
  for (int i = 0; i < 60; i++) {
    if (i % 3 == 0) { work(i); hit(); calls++; } else { work(-i); hits++; }
  }
  return calls;
}

// What is allocated only to be freed is not allocated; of one of the calls of helper() no new is left.
static inline int *make(int v) { return new int(v); }

static inline void helper(int v, int **kept) {
  int *p = make(v);
  sum += *p;
  if (kept) *kept = p; else delete p;
}

__attribute__((noinline)) static long makes() {
  long calls = 0;
  int *kept[10];
  for (int i = 0; i < 40; i++) { helper(i, nullptr); calls++; }
  for (int i = 0; i < 10; i++) { helper(i, &kept[i]); calls++; }
  for (int i = 0; i < 10; i++) { sum += *kept[i]; delete kept[i]; }
  return calls;
}

// The first round of the loop is taken out of it, where realloc(nullptr, n) is malloc(n).
static inline void *grow(void *p, size_t n) {
  void *q = realloc(p, n);
  if (!q) abort();
  return q;
}

__attribute__((noinline)) static void use(char *p, int n) { memset(p, 1, n); }

__attribute__((noinline)) static long grows(int c) {
  long calls = 0;
  for (int k = 0; k < 6; k++) {
    char *p = nullptr;
    int size = 16 + c;
    for (int i = 0; i < 8; i++) {
      p = static_cast<char *>(grow(p, size)); calls++;
      use(p, size);
      size *= 2;
    }
    free(p);
  }
  return calls;
}

int main(int c, char **) {
  printf("note %ld\n", warms_up(c));
  printf("enter %ld\n", nests());
  printf("hit %ld\n", merges());
  printf("make %ld\n", makes());
  printf("grow %ld\n", grows(c));
  fprintf(stderr, "%ld %ld %ld %ld\n", noted, total, hits, sum);
}
