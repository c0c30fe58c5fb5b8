// What tcmalloc itself sampled (TCMALLOC_SAMPLE_PARAMETER) of blocks of two sizes.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
void* kept[300050];
__attribute__((noinline)) void small() { for (int i = 0; i < 300000; ++i) kept[i] = malloc(1000); }
__attribute__((noinline)) void large() { for (int i = 300000; i < 300050; ++i) kept[i] = malloc(1000000); }
int main() {
  small();
  large();
  auto instance = (void* (*)())dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv");
  auto sample = (void (*)(void*, std::string*))dlsym(
      RTLD_DEFAULT, "_ZN15MallocExtension13GetHeapSampleEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  if (!instance || !sample) return 1;
  std::string text;
  sample(instance(), &text);
  FILE* file = fopen("samples.heap", "w");
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
}
