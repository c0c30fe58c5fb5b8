// An animal with containers of the standard library, whose sizes its keeper knows.
// How much of it is inlined is a matter of how it is compiled.
#include <string.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "report.h"

#ifdef INLINED
#define PLACED __attribute__((always_inline)) inline
#else
#define PLACED __attribute__((noinline))
#endif

constexpr std::size_t tick_bytes = 16 * 4096;

std::vector<int> numbers;
std::map<int, std::string> names;
std::unordered_map<int, long> counts;

static void fill()
{
  numbers.reserve(100'000);
  for (int i = 0; i < 60'000; ++i) numbers.push_back(i);
  for (int i = 0; i < 5'000; ++i) names[i] = "a string that is longer than a short one, " + std::to_string(i);
  for (int i = 0; i < 3'000; ++i) counts[i * 7] = i;
}

PLACED std::size_t summed(const std::vector<int>& values)
{
  std::size_t sum = 0;
  for (int value : values) sum += static_cast<std::size_t>(value);
  return sum;
}

PLACED void touch(char* pages, std::size_t bytes)
{
  for (std::size_t at = 0; at < bytes; at += 4096) pages[at] = 1;
}

__attribute__((noinline)) void tick()
{
  void* pages = mmap(nullptr, tick_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  touch(static_cast<char*>(pages), tick_bytes);
  std::vector<int> few(numbers.begin(), numbers.begin() + 100);
  std::sort(few.rbegin(), few.rend());
  if (summed(few) != 4950) report->refused = report->refused + 1;
  munmap(pages, tick_bytes);
}

int main()
{
  open_report();
  report->tick_bytes = tick_bytes;
  fill();
  report->ready = 1;
  while (report->order != 1) {
    tick();
    end_turn();
  }
  return 7;
}
