// What tcmalloc itself tells: the stacks that made its heap grow, and a sample of what is in use.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>
static std::vector<void*> kept;
__attribute__((noinline)) void block(std::size_t size) { kept.push_back(malloc(size)); }
__attribute__((noinline)) void many(int n) { for (int i = 0; i < n; ++i) block(1000); asm volatile(""); }
__attribute__((noinline)) void large() { block(8 << 20); asm volatile(""); }
typedef void* (*instance_t)();
typedef void (*stacks_t)(void*, std::string*);
static void write(const char* function, const char* name) {
  auto instance = (instance_t)dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv");
  auto stacks = (stacks_t)dlsym(RTLD_DEFAULT, function);
  std::string text;
  if (!instance || !stacks) return;
  stacks(instance(), &text);
  FILE* file = fopen(name, "w");
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
}
#define STRING "EPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
int main() {
  kept.reserve(1 << 16);
  many(4000);
  large();
  write("_ZN15MallocExtension19GetHeapGrowthStacks" STRING, "growth.heap");
  write("_ZN15MallocExtension13GetHeapSample" STRING, "sample.heap");
}
