// flags: -fno-stack-protector
// Functions that the compiler inlines in different ways. Each counts its calls and those that reach its end itself;
// what main() prints are the function's name and these counts.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define INLINED static inline __attribute__((always_inline))
#define CALLED static __attribute__((noinline))

struct Counts {
  volatile int begun, done;
};
static Counts nested, outer, thrown, last, table, tail, jumped, copies, cold, split;
static void *volatile kept[4000];
static volatile int number;

CALLED void keep(int size) {
  void *block = malloc(size);
  memset(block, 1, size);
  int at = number;
  kept[at] = block;
  number = at + 1;
}

struct Owner {
  void *block;
  Owner() : block(malloc(50)) {}
  ~Owner() { free(block); }
};

INLINED void in_nested(int size) {
  nested.begun++;
  keep(size);
  nested.done++;
}

INLINED void in_outer(int n) {
  outer.begun++;
  in_nested(n + 1);
  puts("between");
  in_nested(n + 2);
  if (n & 1) in_nested(n + 3);
  outer.done++;
}

CALLED void throws(int n) {
  if (n % 3 == 1) throw n;
  keep(n + 1);
}

INLINED void is_thrown_through(int n) {
  thrown.begun++;
  Owner owner;
  throws(n);
  thrown.done++;
}

CALLED void in_another_frame(int n) {
  is_thrown_through(n);
  puts("not thrown");
}

INLINED void has_table(int n) {
  table.begun++;
  switch (n % 8) {
    case 0: keep(1); break;
    case 1: kept[number] = malloc(2); puts("one"); break;
    case 2: puts("two"); break;
    case 3: keep(3); free(kept[number - 1]); break;
    case 4: kept[number] = calloc(4, 1); break;
    case 5: puts("five"); keep(60); break;
    case 6: putchar('6'); break;
    case 7: keep(70); puts("seven");
  }
  table.done++;
}

CALLED void by_table(int n) {
  switch ((n * 7) % 11) {
    case 0: puts("zero"); break;
    case 1: has_table(n); break;
    case 2: has_table(n + 1); puts("two"); break;
    case 3: puts("three"); has_table(2); break;
    case 4: putchar('4'); break;
    case 5: has_table(5); break;
    case 6: has_table(n * 3); has_table(7); break;
    case 7: puts("seven"); break;
    default: has_table(n);
  }
}

CALLED void ends_tail(int n) {
  keep(n);
  tail.done++;
}

INLINED void has_tail(int n) {
  tail.begun++;
  keep(8);
  ends_tail(n);
}

CALLED void holds_tail(int n) {
  if (n == 4) puts("four");
  has_tail(n);
}

CALLED void is_jumped_to(int n) {
  jumped.begun++;
  keep(n);
  jumped.done++;
}

CALLED void jumps(int n) {
  asm volatile("");
  is_jumped_to(n + 1);
}

INLINED void is_copied(int n) {
  copies.begun++;
  keep(100 + n);
  if (n == 3) puts("three");
  copies.done++;
}

CALLED __attribute__((cold)) void seldom(int n) { keep(1000 + n); }

CALLED void has_cold_part(int n) {
  cold.begun++;
  if (__builtin_expect(n % 5 == 3, 0)) {
    seldom(n);
    cold.done++;
    seldom(n + 1);
    return;
  }
  keep(20);
  cold.done++;
}

static void is_split(const int *times) {
  if (!times) return;
  for (int i = 0; i < *times; ++i) {
    keep(i + 1);
    puts("split");
    keep(i + 2);
  }
  puts("end of split");
}

CALLED void splits(const int *times) {
  split.begun++;
  is_split(times);
  split.done++;
  puts("one");
}

CALLED void splits_too(const int *times) {
  puts("two");
  split.begun++;
  split.done++;
  is_split(times);
}

static int recurses(int n) {
  last.begun++;
  keep(n + 1);
  int deeper = n > 0 ? recurses(n - 1) + 1 : 0;
  keep(8);
  last.done++;
  return deeper;
}

static void print(const char *function, const Counts &counts) {
  printf("%s %d %d\n", function, counts.begun, counts.done);
}

int main(int argc, char **) {
  int three = 3;
  for (int i = 0; i < 5 * argc; ++i) in_outer(i);
  for (int i = 0; i < 9 * argc; ++i) {
    try {
      is_thrown_through(i);
    } catch (int) {
      puts("caught");
    }
  }
  for (int i = 0; i < 3 * argc; ++i) {
    try {
      in_another_frame(i);
    } catch (int) {
      puts("caught");
    }
  }
  for (int i = 0; i < 20 * argc; ++i) by_table(i);
  for (int i = 0; i < 7 * argc; ++i) holds_tail(i);
  for (int i = 0; i < 3 * argc; ++i) jumps(i);
  for (int i = 0; i < 6; ++i) is_copied(i);
  for (int i = 0; i < 12 * argc; ++i) has_cold_part(i);
  for (int i = 0; i < 6 * argc; ++i) {
    splits(i & 1 ? &three : nullptr);
    splits_too(&three);
  }
  printf("deep %d\n", recurses(6 * argc));
  print("in_nested", nested);
  print("in_outer", outer);
  print("is_thrown_through", thrown);
  print("has_table", table);
  print("has_tail", tail);
  print("is_jumped_to", jumped);
  print("is_copied", copies);
  print("has_cold_part", cold);
  print("is_split", split);
  print("recurses", last);
}
