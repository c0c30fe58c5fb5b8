// Inlined functions whose variables have the names of others where they are called. Each counts the calls for which
// the condition in its comment is true; what main() prints are the function's name and this count.
#include <cstdio>
#include <cstdlib>

#define INLINED inline __attribute__((always_inline))
#define CALLED __attribute__((noinline))
#define HAS(variable) asm volatile("" : : "r"(variable))  // a debugger can read it

struct Pool {
  int size;
  const char *name;
  inline void add(int n);
};
static void *volatile kept;
static Pool pools[20];
static volatile int works, adds, inner_calls, outer_calls, plain, statics;

CALLED static void keep(int size) {
  free(kept);
  kept = malloc(size + 1);
}

static INLINED void work(int n) {  // n % 3 == 0
  HAS(n);
  keep(n);
  if (n % 3 == 0) works = works + 1;
  puts("worked");
}

INLINED void Pool::add(int n) {  // size % 2 == 0 && this->name[0] == 'n'
  HAS(this);
  if (size % 2 == 0 && name[0] == 'n') adds = adds + 1;
  keep(n);
  ++size;
}

static INLINED void inner(int depth) {  // depth == 2
  HAS(depth);
  if (depth == 2) inner_calls = inner_calls + 1;
  keep(depth);
}

static INLINED void outer(int depth) {  // depth == 4
  HAS(depth);
  inner(depth - 2);
  if (depth == 4) outer_calls = outer_calls + 1;
  puts("out");
}

static INLINED void counts(void) {  // calls == 3
  static volatile int calls;
  HAS(&calls);
  keep(7);
  if (calls == 3) statics = statics + 1;
  calls = calls + 1;
}

static INLINED void has_none(void) {  // other == 4
  keep(3);
  plain = plain + 1;
}

CALLED static void round(int n, int size, int depth) {
  volatile int other = n, calls = 0;
  work(n + 1 + size);
  printf("%d\n", n);
  Pool &pool = pools[n];
  pool.size = n;
  pool.name = n % 5 ? "near" : "far";
  asm volatile("" : : : "memory");  // it is stored
  pool.add(size);
  printf("%d %d\n", pool.size, size);
  outer(depth + n);
  counts();
  has_none();
  printf("%d %d\n", other, calls);
}

int main() {
  for (int i = 0; i < 20; ++i) round(i, 3, i % 2);
  printf("work %d\nPool::add %d\ninner %d\nouter %d\ncounts %d\n", works, adds, inner_calls, outer_calls, statics);
}
