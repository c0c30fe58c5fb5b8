// flags: -pthread
// One thread is inside its allocator nearly all the time, so that the allocator's locks are nearly always held.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static std::vector<void*> kept;

__attribute__((noinline)) void grown() { __asm__(""); }

int main() {
  std::atomic<bool> goes_on{true};
  std::thread busy([&] {
    while (goes_on) {
      std::vector<void*> blocks;
      for (int i = 0; i < 200; ++i) blocks.push_back(std::malloc(1 << (5 + i % 12)));
      for (void* block : blocks) std::free(block);
    }
  });
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) kept.push_back(std::malloc(1000));
    grown();
  }
  goes_on = false;
  busy.join();
  std::printf("kept %zu\n", kept.size());
}
