// Grows a map in each round and frees its scratch memory: leaky_map [ROUNDS] [ENTRIES]
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

struct Entry {
  std::array<char, 100> text{};
};

std::map<int, Entry> entries;
std::vector<double> scratch;

void remember(int key) {
  entries[key] = Entry();  // the leak
}

void fill(int round, int count) {
  scratch.resize(count);
  for (int i = 0; i < count; ++i) remember(round * count + i);
}

void reset() {
  scratch.clear();
  scratch.shrink_to_fit();
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  const int count = argc > 2 ? std::atoi(argv[2]) : 100;
  for (int round = 0; round < rounds; ++round) {
    fill(round, count);
    reset();
  }
  std::printf("%zu entries\n", entries.size());
  return 0;
}
