// flags: -labsl_raw_hash_set -labsl_hash -labsl_city -labsl_low_level_hash -labsl_hashtablez_sampler
// Flat tables of absl, which print their own sizes, and how many elements fit before they grow.
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <cstdio>
#include <string>
#include <vector>

absl::flat_hash_map<int, std::vector<int>> table;
absl::flat_hash_set<long> emptied, never;

__attribute__((noinline)) void filled() { fflush(stdout); }

int main() {
  for (int i = 0; i < 3000; i++) table[i].resize(10);
  for (long i = 0; i < 5000; i++) emptied.insert(i);
  for (long i = 0; i < 4990; i++) emptied.erase(i);
  printf("table %zu %zu -1\n", table.size(), (table.capacity() + 1) / 8 * 7);
  printf("emptied %zu %zu -1\n", emptied.size(), (emptied.capacity() + 1) / 8 * 7);
  printf("table[*].second 30000 30000 120000\n");
  filled();
}
