// Containers of boost, which print their own sizes and capacities.
#include <boost/container/flat_map.hpp>
#include <boost/container/small_vector.hpp>
#include <boost/container/vector.hpp>
#include <cstdio>
#include <string>
#include <vector>

boost::container::flat_map<int, std::string> flat;
boost::container::small_vector<int, 8> within, beyond;
boost::container::vector<std::vector<int>> nested;

__attribute__((noinline)) void filled() { fflush(stdout); }

int main() {
  for (int i = 0; i < 300; i++) flat[i] = std::to_string(i) + " is a string that is not short";
  for (int i = 0; i < 5; i++) within.push_back(i);
  for (int i = 0; i < 500; i++) beyond.push_back(i);
  for (int i = 0; i < 20; i++) nested.push_back(std::vector<int>(10));
  printf("flat.m_flat_tree.m_data.m_seq %zu %zu %zu\n", flat.size(), flat.capacity(), flat.capacity() * sizeof(*flat.begin()));
  printf("within %zu %zu 0\n", within.size(), within.capacity());
  printf("beyond %zu %zu %zu\n", beyond.size(), beyond.capacity(), beyond.capacity() * sizeof(int));
  printf("nested %zu %zu %zu\n", nested.size(), nested.capacity(), nested.capacity() * sizeof nested[0]);
  printf("nested[*] 200 200 800\n");
  filled();
}
