// Containers with an allocator that has a state, lists without a count, and some that nobody outside can read.
// flags: -O0
#include <cstdio>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

namespace absl {
template <class Key, class Value>
struct flat_hash_map {  // in name only
  void *control = this;
  long count = 7;
};
}  // namespace absl

struct Server {
  std::pmr::vector<long> numbers;
  std::pmr::map<int, int> ordered;
  std::pmr::unordered_map<int, std::pmr::string> texts;
  std::pmr::list<int> listed;
  std::pmr::deque<int> queued;
  std::pmr::string name;
  std::forward_list<long> chained;
  std::forward_list<int> empty;
  std::unique_ptr<int[]> raw, none;
  absl::flat_hash_map<int, int> flat[3];
};

Server server;

__attribute__((noinline)) void filled() { __asm__ volatile(""); }

int main() {
  for (int n = 0; n < 1000; n++) {
    server.numbers.push_back(n);
    server.ordered[n] = n;
    server.texts[n] = "a text that is too long to stand in the string itself";
    server.listed.push_back(n);
    server.queued.push_back(n);
    server.chained.push_front(n);
  }
  server.name.assign(5000, 'x');
  server.raw = std::make_unique<int[]>(100);
  filled();
  std::puts("done");
  return 0;
}
