#include <mcheck.h>
#include <cstdio>
#include <map>
#include <string>
int main() {
  mtrace();
  auto *lost = new std::map<std::string, std::string>;
  for (int n = 0; n < 40; n++) (*lost)[std::to_string(n)] = std::string(50 + n, 'x');
  std::string gone(1000, 'y');
  std::printf("%zu\n", lost->size());
  muntrace();
}
