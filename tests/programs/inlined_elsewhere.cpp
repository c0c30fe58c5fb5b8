// Functions that are inlined by way of another file, and into handlers that std::function calls.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "inlined_elsewhere.h"

static long said, kept, released;
static std::vector<std::string> texts;

__attribute__((noinline)) static long fill(char *p, int n) {
  memset(p, n, n);
  return p[n - 1];
}

// Of a call that frees nothing, no code is left.
__attribute__((noinline)) static long drops(int c) {
  long calls = 0, sum = 0;
  for (int i = 1; i < 60 + c; i++) {
    char *p = static_cast<char *>(malloc(i)), *q = static_cast<char *>(malloc(i + 1));
    sum += fill(p, i) + fill(q, i);
    drop_both(p, nullptr); calls += 2;
    drop_both(nullptr, q); calls += 2;
  }
  return sum ? calls : 0;
}

// All of these free something.
static inline void release(void *p) { free(p); }

__attribute__((noinline)) static long releases() {
  long sum = 0;
  for (int i = 1; i < 60; i++) {
    char *p = static_cast<char *>(malloc(i));
    sum += fill(p, i);
    release(p); released++;
  }
  return sum;
}

// Where the text is known to be missing, the compiler goes past the call.
__attribute__((noinline)) static void keep(const char *text) { kept += *text; }
__attribute__((noinline)) static const char *text_of(int i) { return &"abcdefgh"[i % 7]; }
static inline void tell(const char *text) { if (text) keep(text); }

__attribute__((noinline)) static long tells() {
  long calls = 0;
  for (int i = 0; i < 60; i++) {
    const char *text = nullptr;
    if (i % 3) text = text_of(i);
    tell(text); calls++;
  }
  return calls;
}

// gdb puts a point for the last of these calls into the next function, which is called once more.
static inline void say(const std::string &what) { said++; texts.push_back(what); }

struct Bus {
  std::map<std::string, std::vector<std::function<int(int)>>> handlers;
  void bind(const std::string &name, std::function<int(int)> f) { handlers[name].push_back(std::move(f)); }
  int emit(const std::string &name, int v) {
    int sum = 0;
    for (auto &one : handlers[name]) sum += one(v);
    return sum;
  }
};

int main(int c, char **) {
  {
    Bus bus;
    int total = 0;
    bus.bind("a", [&](int v) { say("a" + std::to_string(v)); return v + c; });
    bus.bind("a", [&](int v) { if (v & 1) say("odd"); return total; });
    for (int i = 0; i < 40; i++) total += bus.emit(i % 4 ? "a" : "b", i);
    fprintf(stderr, "%d %zu\n", total, texts.size());
  }
  printf("drop %ld\n", drops(c));
  printf("tell %ld\n", tells());
  fprintf(stderr, "%ld %ld\n", releases(), kept);
  printf("release %ld\nsay %ld\n", released, said);
}
