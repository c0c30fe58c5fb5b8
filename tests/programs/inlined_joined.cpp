// Functions that each count their calls, whose counts the compiler joins or moves: `name calls`.
#include <cstdio>
#include <cstdlib>

static unsigned long mixed, hashed, divided;
static unsigned state = 7;
static char *block;

static inline unsigned mix(unsigned x) {
  mixed += 1;
  state ^= x * 2654435761u;
  state = state << 5 | state >> 27;
  return state;
}

static inline unsigned hash(const char *text) {
  hashed++;
  unsigned sum = 2166136261u;
  while (*text)
    sum = (sum ^ *text++) * 16777619u;
  return sum;
}

static int gcd(int a, int b) {
  divided++;
  return b ? gcd(b, a % b) : a;
}

// clang makes a variable of each field.
static struct {
  long read, bytes, written, flushed;
} stats;

static inline int put(int n) {
  stats.written++;
  stats.flushed += 2;
  if (n > 3) {
    block = (char *)std::realloc(block, n);
    return 1;
  }
  return 0;
}

static inline int get(int n) {
  stats.read++;
  stats.bytes += n;
  return n & 1;
}

// A count that is written under two names, or by two functions, shows nothing.
static int total, other, shared;
static volatile int firsts;

static inline void tock(int n) {
  int &t = total;
  t++;
  other += n;
}

static inline void first(int n) {
  shared++;
  other ^= n;
}

static inline void second(int n) {
  shared++;
  other += n;
}

__attribute__((noinline)) static unsigned work(int n) {
  unsigned sum = hash("alpha") ^ hash("beta");
  for (int i = 0; i < 4; i++)
    sum += mix(n + i);
  if (n & 1)
    sum += hash("gamma") + get(2) + get(3);
  for (int i = 0; i < 4; i++)
    tock(i);
  sum += gcd(n * 6, n + 21) + put(n) + get(n) + put(2);
  first(n);
  firsts = firsts + 1;
  second(n);
  block = (char *)std::realloc(block, n + 1);
  return sum;
}

int main() {
  unsigned sum = 0;
  for (int i = 1; i < 12; i++)
    sum += work(i);
  std::fprintf(stderr, "%u %d %ld %ld\n", sum, other, stats.bytes, stats.flushed);
  std::printf("mix %lu\nhash %lu\ngcd %lu\n", mixed, hashed, divided);
  std::printf("put %ld\nget %ld\ntock %d\nfirst %d\n", stats.written, stats.read, total, firsts);
  std::free(block);
}
