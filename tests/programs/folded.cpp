// Functions with identical code, which linkers fold with --icf=all: 3 calls of one, 2 of the other; of static ones,
// 1 and 3.
#include <cstdlib>

#if defined __clang__
#define KEPT __attribute__((noinline))
#else
#define KEPT __attribute__((noinline, no_icf))  // the compiler would fold them itself
#endif
static void *volatile kept;

KEPT void first(int n) { kept = malloc(n); }
KEPT void second(int n) { kept = malloc(n); }
__attribute__((noinline)) static void alone(int n) { kept = malloc(n + 1); }
KEPT static void third(int n) { kept = calloc(n, 1); }
KEPT static void fourth(int n) { kept = calloc(n, 1); }

int main() {
  for (int i = 0; i < 3; ++i) first(i);
  for (int i = 0; i < 2; ++i) second(i);
  for (int i = 0; i < 2; ++i) alone(i);
  third(3);
  for (int i = 0; i < 3; ++i) fourth(i);
  return kept == nullptr;
}
