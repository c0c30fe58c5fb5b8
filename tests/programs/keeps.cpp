// Keeps blocks from one line, with threads beside, and prints what it kept and a sum made in floating point.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static std::vector<char*> kept;

__attribute__((noinline)) void keep(std::size_t size) {
  kept.push_back(static_cast<char*>(std::malloc(size)));  // the line that keeps
}

__attribute__((noinline)) double mix(double a, double b, double c) {
  return a * b + c;
}

__attribute__((noinline)) void batch(int count) {
  for (int i = 0; i < count; ++i) keep(4096);
}

int main(int argc, char** argv) {
  kept.reserve(1 << 12);
  bool go_on = true;
  std::thread other([&] { while (__atomic_load_n(&go_on, __ATOMIC_SEQ_CST)) std::free(std::malloc(64)); });
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    batch(100);
    sum += mix(1.25, i, sum);
  }
  __atomic_store_n(&go_on, false, __ATOMIC_SEQ_CST);
  other.join();
  std::printf("kept %zu blocks, sum %.4f\n", kept.size(), sum);
  return argc > 1 ? std::atoi(argv[1]) : 0;
}
