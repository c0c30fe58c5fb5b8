// Two kinds of threads that allocate, each in a function of its own: threads [BLOCKS]
#include <cstdio>
#include <cstdlib>
#include <thread>

void* kept[2][100000];

void produce(int count) {
  for (int i = 0; i < count; ++i) kept[0][i] = std::malloc(64);
}

void consume(int count) {
  for (int i = 0; i < count; ++i) kept[1][i] = std::malloc(32);
}

__attribute__((noinline)) void joined() { __asm__(""); }

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::thread producer(produce, count);
  std::thread consumer(consume, count);
  producer.join();
  consumer.join();
  joined();
  std::puts("joined");
  return 0;
}
