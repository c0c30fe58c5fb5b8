// Keeps finished tasks in a map that is never erased, and works on a buffer of its heap all the time.
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <vector>

struct Task {
  virtual ~Task() = default;
  std::array<char, 200> text{};
};

namespace app {
std::map<int, std::unique_ptr<Task>> tasks;
}

int main() {
  for (int key = 0; key < 100000; ++key) app::tasks[key] = std::make_unique<Task>();
  std::vector<std::unique_ptr<std::array<char, 3000>>> busy;
  for (int i = 0; i < 2000; ++i) busy.push_back(std::make_unique<std::array<char, 3000>>());
  std::puts("ready");
  std::fflush(stdout);
  for (char round = 0;; ++round) {
    for (auto& one : busy) one->fill(round);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
