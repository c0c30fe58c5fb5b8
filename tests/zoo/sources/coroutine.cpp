// An animal whose day is a coroutine: its locals lie in a frame on the heap.
#include <string.h>

#include <coroutine>
#include <exception>
#include <memory>
#include <vector>

#include "report.h"

constexpr std::size_t tick_bytes = 16 * 4096;

struct Day {
  struct promise_type {
    Day get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Day tick()
{
  std::vector<char> kept(1000);
  while (report->order != 1) {
    void* pages = mmap(nullptr, tick_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 1, tick_bytes);
    kept[report->ticks % kept.size()] = 1;
    munmap(pages, tick_bytes);
    co_await std::suspend_always{};
  }
}

int main()
{
  open_report();
  report->tick_bytes = tick_bytes;
  Day day = tick();
  report->ready = 1;
  while (report->order != 1) {
    day.handle.resume();
    end_turn();
  }
  return 7;
}
