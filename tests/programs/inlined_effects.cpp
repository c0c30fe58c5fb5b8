// Functions that each do what their source says once, or only seems to say: `name calls`.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <vector>

static int takes, drops, steps, seen, kept, checks, links, waits;
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

static inline long chain(int n) { links++; return n < 2 ? n : chain(n - 1) + (n & 1); }

int main(int argc, char **) {
  long sum = 0, walks = 0, keeps = 0, all_steps = 0, all_checks = 0, all_waits = 0;
  {
    std::vector<Ref> refs;
    for (int i = 0; i < 40; i++) {
      Ref one(new Node);
      refs.push_back(one);
      if (i % 5 == 0)
        refs[i / 2] = one;
    }
  }
  std::atomic<int> left{500};
  std::vector<int> numbers;
  for (int i = 0; i < 30 + argc; i++) {
    sum += credit(left, i % 7) + wait(i), all_waits++;
    if (i % 4 == 0)
      sum += credit(left, 1) + wait(sum & 3), all_waits++;
    sum += step(i), all_steps++;
    numbers.push_back(i * 7 % 20);
  }
  for (int i = 0; i < 5; i++)
    sum += walk(numbers), walks++, sum += keep(numbers, i), keeps++;
  for (int i = 0; i < 40; i++)
    try {
      all_checks++, sum += check(i);
      for (int k = 0; k < 4; k++)
        all_checks++, sum += check(k);
    } catch (int n) {
      sum -= n;
    }
  sum += chain(12 + argc) + chain(5);
  std::fprintf(stderr, "%ld %d %d %d\n", sum, seen, steps, checks);
  std::printf("take %d\ndrop %d\ncredit %ld\nwait %ld\nstep %ld\n", takes, drops, credits.load(), all_waits, all_steps);
  std::printf("walk %ld\nkeep %ld\ncheck %ld\nchain %d\n", walks, keeps, all_checks, links);
}
