// Preloaded with tcmalloc into any program, writes what made its heap grow when it ends: GROWTH names the file.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
__attribute__((destructor)) static void write() {
  std::string text;
  auto instance = (void* (*)())dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv");
  auto stacks = (void (*)(void*, std::string*))dlsym(
      RTLD_DEFAULT, "_ZN15MallocExtension19GetHeapGrowthStacksEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  if (!instance || !stacks || !getenv("GROWTH")) return;
  stacks(instance(), &text);
  FILE* file = fopen(getenv("GROWTH"), "w");
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
}
