// What makes tcmalloc's heap grow in a program of two threads, written as growing.heap: maps, strings and one freed block.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <string>
#include <thread>
#include <vector>
__attribute__((noinline)) void fill(std::map<int, std::string>& map, int count) {
  for (int n = 0; n < count; n++) map[n] = std::string(400, 'x');
}
__attribute__((noinline)) void come_and_go() { free(malloc(5 << 20)); asm volatile(""); }
int main() {
  std::map<int, std::string> first, second;
  std::thread one([&] { fill(first, 9000); });
  one.join();
  std::thread two([&] { fill(second, 3000); come_and_go(); });
  two.join();
  std::string text;
  auto instance = (void* (*)())dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv");
  auto stacks = (void (*)(void*, std::string*))dlsym(
      RTLD_DEFAULT, "_ZN15MallocExtension19GetHeapGrowthStacksEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  if (!instance || !stacks) return 1;
  stacks(instance(), &text);
  FILE* file = fopen("growing.heap", "w");
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
}
