// Allocates the way the reader has to understand it: lambdas, inlining, recursion, threads, pages.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <sys/mman.h>

namespace {
std::map<int, std::string> kept;
std::vector<std::unique_ptr<char[]>> blocks;

inline __attribute__((always_inline)) void* innermost(size_t n) { return std::malloc(n); }
inline __attribute__((always_inline)) void* middle(size_t n) { return innermost(n + 8); }
__attribute__((noinline)) void* outermost(size_t n) { return middle(n * 2); }

__attribute__((noinline)) void* recurse(int depth) {
  void* p = depth > 0 ? recurse(depth - 1) : outermost(100);
  asm volatile("" ::: "memory");
  return p;
}
struct Visitor {
  template <class F> __attribute__((noinline)) void each(int n, F&& f) { for (int i = 0; i < n; i++) f(i); }
};
__attribute__((noinline)) char* with_callback(char* (*make)(int (*)(char), size_t)) { return make(nullptr, 64); }
__attribute__((noinline)) char* make_bytes(int (*)(char), size_t n) { return new char[n]; }
}  // namespace

int main(int argc, char** argv) {
  int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  std::vector<std::thread> workers;
  for (int w = 0; w < 3; w++)
    workers.emplace_back([w, rounds] {
      std::vector<std::string> mine;
      for (int i = 0; i < rounds * 4; i++) mine.push_back(std::string(40 + w * 10, 'x'));
    });
  for (auto& worker : workers) worker.join();
  Visitor visitor;
  for (int round = 0; round < rounds; round++) {
    visitor.each(8, [round](int i) { kept.emplace(round * 8 + i, std::string(30 + i, 'k')); });
    visitor.each(4, [](int i) { blocks.emplace_back(new char[100 * (i + 1)]); });
    std::free(recurse(round % 5));
    volatile char* c = with_callback(make_bytes);
    if (round % 2) delete[] c;
    if (round % 7 == 6) blocks.clear();
  }
  std::function<void()> last = [&] { blocks.emplace_back(new char[5000]); };
  last();
  void* page = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page, 1 << 20);
  std::puts("done");
  return 0;
}
