// flags: -pthread
// Four threads (THREADS) that come to meet() together, three times (ROUNDS), each with a number in a floating-point register.
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#ifndef THREADS
#define THREADS 4
#define ROUNDS 3
#endif

static std::atomic<int> meetings{0};

__attribute__((noinline)) double meet(double number) {
  meetings.fetch_add(1);
  return number + 1.0;
}

int main() {
  pthread_barrier_t together;
  pthread_barrier_init(&together, nullptr, THREADS);
  double sums[THREADS] = {}, sum = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < THREADS; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < ROUNDS; ++round) {
        pthread_barrier_wait(&together);
        sums[number] += meet(number * 3.0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (double one : sums) sum += one;
  std::printf("%d meetings, sum %.1f\n", meetings.load(), sum);
}
