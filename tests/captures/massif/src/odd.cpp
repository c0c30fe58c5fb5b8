// Compiled under a folder name with blanks, parentheses, '#', ':' and a byte that is no UTF-8.
#include <cstdlib>
#include <new>

struct Größe {
  void* value;
  __attribute__((noipa)) void wachse(int (*by)(char), std::size_t n) { value = std::malloc(n + (by ? by('a') : 0)); }
};
static int by_one(char c) { return c == 'a'; }
__attribute__((noipa)) static void* pick(int (*by)(char), std::size_t n) {
  Größe größe{};
  größe.wachse(by, n);
  return größe.value;
}

int main(int argc, char**) {
  auto twice = [](std::size_t n) { return pick(by_one, 2 * n); };
  void* volatile kept[20];
  for (int i = 0; i < 20; i++) kept[i] = i % 2 ? twice(100 + i) : ::operator new(64);
  return argc > 5 && kept[3] == nullptr;
}
