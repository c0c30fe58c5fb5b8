// flags: -pthread
// Four threads that come to meet() together, three times, each with a number in a floating-point register.
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

static std::atomic<int> meetings{0};

__attribute__((noinline)) double meet(double number) {
  meetings.fetch_add(1);
  return number + 1.0;
}

int main() {
  pthread_barrier_t together;
  pthread_barrier_init(&together, nullptr, 4);
  double sums[4] = {};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < 3; ++round) {
        pthread_barrier_wait(&together);
        sums[number] += meet(number * 3.0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::printf("%d meetings, sum %.1f\n", meetings.load(), sums[0] + sums[1] + sums[2] + sums[3]);
}
