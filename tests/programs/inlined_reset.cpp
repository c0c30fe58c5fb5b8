// Four rounds, each of which frees a structure in reset(); optimised, reset() is inlined into main().
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

struct Engine {
  std::unique_ptr<std::vector<std::unique_ptr<std::string>>> all;
  std::vector<std::unique_ptr<std::string>> kept;

  __attribute__((noinline)) void load(int n) {
    all = std::make_unique<std::vector<std::unique_ptr<std::string>>>();
    for (int i = 0; i < n; ++i) all->push_back(std::make_unique<std::string>(100, 'x'));
    kept.push_back(std::make_unique<std::string>(10000, 'k'));
  }
  void reset() { all.reset(); }
};

int main() {
  Engine e;
  for (int i = 0; i < 4; ++i) {
    e.load(1000);
    e.reset();
    printf("round %d\n", i);
    fflush(stdout);
  }
}
