// Functions that each do what their source says once, or only seems to say: `name calls`.
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static int takes, drops, steps, seen, kept, checks, links, waits, surely;
static long total;
static std::atomic<long> credits{0};

struct Node {
  int refs = 0;
};

// It writes through a pointer on the line on which it counts.
static inline void take(Node *node) { node->refs++, takes++; }

static inline void drop(Node *node) {
  drops++;
  if (--node->refs == 0)
    delete node;
}

struct Ref {
  Node *node;
  explicit Ref(Node *one) : node(one) { take(node); }
  Ref(const Ref &other) : node(other.node) { take(node); }
  Ref &operator=(const Ref &other) {
    take(other.node);
    drop(node);
    node = other.node;
    return *this;
  }
  ~Ref() { drop(node); }
};

static inline bool credit(std::atomic<int> &left, int n) {
  credits.fetch_add(1, std::memory_order_relaxed);
  int old = left.load();
  while (old >= n && !left.compare_exchange_weak(old, old - n)) {
  }
  return old >= n;
}

// What it does first is done by a constructor.
struct Waiting {
  Waiting() { waits++; }
};

static inline int wait(int n) {
  Waiting now;
  if (n % 3 == 0)
    return 0;
  return n * 2;
}

#define NEED(x) do { if (!(x)) return -1; } while (0)

static inline int step(int n) {
  NEED(n % 3);
  steps++;
  return n;
}

static inline long walk(const std::vector<int> &all) {
  long sum = 0;
  std::for_each(all.begin(), all.end(), [&](int one) { seen++; sum += one; });
  return sum;
}

static inline long keep(std::vector<int> &all, int n) {
  auto is_less = [n](int one) { return one < n; };
  kept++;
  all.erase(std::remove_if(all.begin(), all.end(), is_less), all.end());
  return static_cast<long>(all.size());
}

static inline void need(int n) {
  if (n % 5 == 4)
    throw n;
}

// An exception leaves it before it counts.
static inline int check(int n) {
  need(n);
  checks++;
  return n * 2;
}

static inline void weigh(long n) { total += 1 + n; }

static inline int sure(int n) {
  assert(n >= 0);
  surely++;
  return n & 7;
}

// g++ makes copies of it for some arguments.
__attribute__((noinline)) static int grind(int n, int how) {
  int sum = n;
  for (int i = 0; i < n % 7 + how; i++) {
    sum = sum * 31 + i;
    if (how > 5 && sum % 11 == 0)
      sum += std::rand() % 2;
    if (how == 3)
      sum ^= n;
  }
  total += sum & 1;
  return sum;
}

static inline int use(int n, int how) {
  int got = grind(n, how);
  if (got & 1)
    return got / 2;
  return got + how;
}

// Compilers call it once for equal arguments, and copy few bytes without a call.
__attribute__((noinline)) static int square(int n) { return n * n % 97; }

static volatile int depth;
static char text[64];

static inline int area(int n) {
  int got = square(n);
  return got & 1 ? got + depth : got - depth;
}

static inline void copy(const char *from, int n) {
  std::memcpy(text, from, n);
  if (text[0] == 'x')
    text[1] = static_cast<char>(depth);
}

static inline long chain(int n) { links++; return n < 2 ? n : chain(n - 1) + (n & 1); }

int main(int argc, char **) {
  long sum = 0, walks = 0, keeps = 0, all_steps = 0, all_checks = 0, all_waits = 0;
  {
    std::vector<Ref> refs;
    for (int i = 0; i < 11 + argc; i++) {
      Ref one(new Node);
      refs.push_back(one);
      if (i % 5 == 0)
        refs[i / 2] = one;
    }
  }
  std::atomic<int> left{50};
  std::vector<int> numbers;
  for (int i = 0; i < 9 + argc; i++) {
    sum += credit(left, i % 7) + wait(i), all_waits++;
    if (i % 4 == 0)
      sum += credit(left, 1) + wait(sum & 3), all_waits++;
    sum += step(i), all_steps++;
    numbers.push_back(i * 7 % 20);
    weigh(i);
    for (int k = 0; k < 4; k++)
      sum += sure(i + k);
  }
  for (int i = 0; i < 3; i++)
    sum += walk(numbers), walks++, sum += keep(numbers, i), keeps++;
  for (int i = 0; i < 11 + argc; i++)
    try {
      all_checks++, sum += check(i);
      for (int k = 0; k < 4; k++)
        all_checks++, sum += check(k);
    } catch (int n) {
      sum -= n;
    }
  long uses = 0, areas = 0, copies = 0;
  for (int i = 0; i < 9 + argc; i++) {
    sum += use(i, 3), uses++;
    if (i % 2)
      sum += use(i + 1, 3), uses++;
    sum += use(i, argc + 4), uses++;
    if (i % 5 == 0)
      sum += use(i * 2, 9), uses++;
    sum += area(argc + 3), areas++;
    sum += area(argc + 3), areas++;
    copy("four", 4), copies++;
    if (i % 4 == 0)
      copy("fourteen", argc + 3), copies++;
  }
  sum += chain(12 + argc) + chain(5);
  std::fprintf(stderr, "%ld %d %d %d %ld %s\n", sum, seen, steps, checks, total, text);
  std::printf("take %d\ndrop %d\ncredit %ld\nwait %ld\nstep %ld\n", takes, drops, credits.load(), all_waits, all_steps);
  std::printf("walk %ld\nkeep %ld\ncheck %ld\nchain %d\nweigh %ld\nsure %d\n", walks, keeps, all_checks, links, all_steps, surely);
  std::printf("use %ld\narea %ld\ncopy %ld\n", uses, areas, copies);
}
