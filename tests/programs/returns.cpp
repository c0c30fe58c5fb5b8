// Functions that return in several ways, or don't: returns
// flags: -O2
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

void* volatile kept;

__attribute__((noinline)) int recurse(int depth) {
  kept = std::malloc(100);
  if (depth > 0) recurse(depth - 1);
  kept = std::malloc(100);
  return depth;
}

__attribute__((noinline)) void throws(bool now) {
  kept = std::malloc(10);
  if (now) throw std::runtime_error("now");
}

__attribute__((noinline)) void passes(bool now) {
  throws(now);
  kept = std::malloc(10);
}

__attribute__((noinline)) void* leaf(int size) { return std::malloc(size); }

__attribute__((noinline)) void* tail(int size) { return leaf(size + 1); }

__attribute__((noinline)) void in_thread(int size) {
  kept = std::malloc(size);
  kept = std::malloc(size);
}

int main() {
  recurse(3);
  for (bool now : {true, false}) {
    try {
      passes(now);
    } catch (const std::exception&) {
    }
  }
  kept = tail(50);
  std::thread one(in_thread, 10), two(in_thread, 20);
  one.join();
  two.join();
  std::puts("done");
  return 0;
}
