// Inlined functions that longjmp or an exception leaves, that catch one themselves, and whose calls the compiler merges,
// or of which it inlines a part only. Each counts its calls and those that reach its end; main() prints the counts.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CALLED static __attribute__((noinline))

struct Counts {
  volatile int begun, done;
};
static Counts jumped, caught, thrown, merged, part, split, cleaned;
static void *volatile ring[64];
static volatile int number;

CALLED void keep(int size) {
  int at = number & 63;
  free(ring[at]);
  ring[at] = malloc(size);
  number = number + 1;
}

static jmp_buf out;

static inline void jumps(int n) {
  jumped.begun++;
  keep(11);
  if (n % 4 == 2) longjmp(out, 1);
  keep(12);
  jumped.done++;
}

CALLED void is_jumped_out_of(int n) {
  if (setjmp(out)) {
    keep(13);
    return;
  }
  jumps(n);
  keep(14);
}

static inline int catches(int n) {
  caught.begun++;
  try {
    keep(9);
    if (n % 2) throw n;
    keep(19);
  } catch (int one) {
    keep(29 + one);
  }
  caught.done++;
  return n;
}

CALLED int holds_catching(int n) {
  int found = catches(n);
  keep(3);
  return found;
}

CALLED void may_throw(int n) {
  keep(n + 1);
  if (n % 3 == 1) throw n;
}

static inline void is_left(int n) {
  thrown.begun++;
  may_throw(n);
  thrown.done++;
}

CALLED int has_no_cleanup(int n) {
  is_left(n);
  keep(2);
  return n;
}

struct Guard {
  int size;
  ~Guard() {
    cleaned.begun++;
    keep(size);
    cleaned.done++;
  }
};

CALLED void cleans_up(int n) {
  Guard guard{n + 30};
  may_throw(n);
}

static inline void merges(int n) {
  merged.begun++;
  keep(n + 1);
  merged.done++;
}

CALLED void has_merged(int n) {
  merges(n);
  merges(n + 1);
  if (n % 2)
    merges(n);
  else {
    merges(n);
    merges(n);
  }
}

__attribute__((cold)) CALLED void complains(int n) {
  keep(n);
}

static inline int is_inlined_in_part(int n) {
  part.begun++;
  if (__builtin_expect(n % 5 == 4, 0)) {
    complains(n);
    keep(77);
    part.done++;
    return -1;
  }
  keep(n);
  part.done++;
  return n;
}

CALLED int holds_parts(int n) {
  int found = is_inlined_in_part(n);
  if (__builtin_expect(found < 0, 0)) {
    complains(1);
    found = is_inlined_in_part(0);
  }
  return found + is_inlined_in_part(n + 2);
}

static int is_split_in_itself(const char *text) {
  split.begun++;
  if (!text) {
    split.done++;
    return 0;
  }
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) keep(text[i]);
  keep(1);
  keep(2);
  keep(3);
  if (length > 3) {
    keep(5);
    keep(6);
  }
  split.done++;
  return (int)length;
}

CALLED int calls_split(int n) {
  return is_split_in_itself(n % 3 ? "ab" : nullptr) + is_split_in_itself(n % 2 ? nullptr : "abcd");
}

static void print(const char *function, const Counts &counts) {
  printf("%s %d %d\n", function, counts.begun, counts.done);
}

int main() {
  for (int n = 0; n < 7; n++) {
    is_jumped_out_of(n);
    holds_catching(n);
    try {
      has_no_cleanup(n);
    } catch (int) {
    }
    try {
      cleans_up(n);
    } catch (int) {
    }
    has_merged(n);
    holds_parts(n);
    calls_split(n);
  }
  print("jumps", jumped);
  print("catches", caught);
  print("is_left", thrown);
  print("Guard::~Guard", cleaned);
  print("merges", merged);
  print("is_inlined_in_part", part);
  print("is_split_in_itself", split);
}
