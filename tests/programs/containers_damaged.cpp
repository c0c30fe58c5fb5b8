// Containers that something wrote over, one of each kind, beside sound ones; and arrays that a unique_ptr owns.
// flags: -O0
#include <cstdio>
#include <cstring>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <vector>

struct alignas(64) Wide {
  std::vector<int> cells;
};

struct Sound {
  std::vector<int> vector = std::vector<int>(10), empty;
  std::list<int> list = std::list<int>(10);
  std::map<int, int> map;
} sound;

struct Damaged {
  std::vector<int> vector = std::vector<int>(10);
  std::vector<bool> bits = std::vector<bool>(100);
  std::string string = std::string(100, 'x');
  std::deque<int> deque = std::deque<int>(10);
  std::list<int> list = std::list<int>(10);
  std::map<int, int> map = {{1, 2}};
  std::unordered_map<int, int> table = {{1, 2}};
  std::shared_ptr<int> shared = std::make_shared<int>(1);
  std::unique_ptr<std::string> owned = std::make_unique<std::string>("x");
  std::list<std::string> chain = std::list<std::string>(10);
} damaged;

struct Arrays {
  std::unique_ptr<std::string[]> strings, none;
  std::unique_ptr<std::vector<int>[]> vectors;
  std::unique_ptr<Wide[]> wide;
  std::unique_ptr<int[]> numbers;
  std::unique_ptr<std::string[]> miscounted;
} arrays;

template <class T> static void overwrite(T &container) { memset(reinterpret_cast<void *>(&container), 'A', sizeof(long)); }

__attribute__((noinline)) void filled() { __asm__ volatile(""); }

int main() {
  overwrite(damaged.vector), overwrite(damaged.bits), overwrite(damaged.string), overwrite(damaged.deque);
  overwrite(damaged.list), overwrite(damaged.map), overwrite(damaged.table), overwrite(damaged.owned);
  reinterpret_cast<long *>(&damaged.map)[2] = 0x4141;                  /* the root */
  reinterpret_cast<long *>(&damaged.shared)[1] = 0x4141414141414141;   /* the counts */
  char *fifth = reinterpret_cast<char *>(&*std::next(damaged.chain.begin(), 4));
  memset(fifth - 16, 'A', 8); /* its link to the next node */
  arrays.strings.reset(new std::string[7]);
  arrays.strings[3].assign(99, 's');
  arrays.vectors.reset(new std::vector<int>[1000]);
  for (int n = 0; n < 1000; n++) arrays.vectors[n].resize(10);
  arrays.wide.reset(new Wide[5]);
  arrays.wide[4].cells.resize(50);
  arrays.numbers.reset(new int[100]);
  arrays.miscounted.reset(new std::string[7]);
  reinterpret_cast<long *>(arrays.miscounted.get())[-1] = 70000;
  filled();
  puts("done");
  fflush(stdout);
  _exit(0); /* nothing is destroyed */
}
