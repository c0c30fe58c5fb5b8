// Allocations whose sizes are known: what is kept, what is freed, from several call paths.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>
#ifdef GPERF
#include <gperftools/heap-profiler.h>
#endif
#include <cstdio>
#include <dlfcn.h>

static std::vector<char*> kept;
__attribute__((noinline)) void keep(std::size_t size) { kept.push_back(new char[size]); }
__attribute__((noinline)) void churn(std::size_t size) { char* p = new char[size]; p[0] = 1; asm volatile("" ::"r"(p)); delete[] p; }
static inline __attribute__((always_inline)) void small_order(int n) { for (int i = 0; i < n; ++i) keep(100); }
static std::map<int, std::string> orders;
__attribute__((noinline)) void order(int n) { for (int i = 0; i < n; ++i) orders[i] = std::string(200, 'x'); }
__attribute__((noinline)) void deep(int n) { if (n) deep(n - 1); else keep(5000); asm volatile(""); }
typedef void (*dump_t)(const char*);
typedef int (*mallctl_t)(const char*, void*, size_t*, void*, size_t);
static void dump(const char* name) {
  if (auto d = (dump_t)dlsym(RTLD_DEFAULT, "HeapProfilerDump")) d(name);
  if (auto m = (mallctl_t)dlsym(RTLD_DEFAULT, "mallctl")) { std::string f = std::string(name) + ".jeheap"; const char* p = f.c_str(); m("prof.dump", nullptr, nullptr, &p, sizeof p); }
}
int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 100;
  kept.reserve(1 << 16);
  small_order(n);
  for (int i = 0; i < n; ++i) churn(1000);
  dump("first");
  order(n);
  deep(20);
  small_order(n);
  dump("second");
  printf("kept %zu\n", kept.size());
}
