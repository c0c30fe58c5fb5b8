// Call paths whose share of the heap keeps changing: they slide under a profiler's threshold and back.
// flags: -O2
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Node {
  char text[72];
};

std::map<int, Node> nodes;
std::list<std::string> log_lines;
std::vector<std::unique_ptr<char[]>> blocks;

void remember(int key) { nodes[key] = Node(); }
void note(int key) { log_lines.push_back(std::string(60 + key % 50, 'x')); }
void keep(size_t size) { blocks.emplace_back(new char[size]); }

void keep_two(size_t size) {
  keep(size);
  keep(3 * size);
}

__attribute__((noinline)) void small_work(int round) {
  for (int i = 0; i < 4; ++i) keep(40 + 10 * round);
  if (round % 3 == 0) keep_two(500);
}

__attribute__((noinline)) void large_work(int round) {
  for (int i = 0; i < 300; ++i) remember(300 * round + i);
  for (int i = 0; i < 30 * (round % 4); ++i) note(i);
  if (round % 5 == 4) keep_two(20000);
}

__attribute__((noinline)) void drop(int round) {
  if (round % 3 == 1) nodes.clear();
  if (round % 4 == 2) log_lines.clear();
  if (round % 5 == 3) blocks.clear(), blocks.shrink_to_fit();
}

int main() {
  for (int round = 0; round < 20; ++round) {
    small_work(round);
    large_work(round);
    drop(round);
  }
  std::printf("%zu nodes\n", nodes.size());
  return 0;
}
