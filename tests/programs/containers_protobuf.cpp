// flags: -lprotobuf
// Repeated fields of protobuf and flat tables of absl, which print their own sizes and capacities.
#include <google/protobuf/repeated_field.h>
#include <cstdio>
#include <string>

google::protobuf::RepeatedField<int> numbers;
google::protobuf::RepeatedPtrField<std::string> names;

__attribute__((noinline)) void filled() { fflush(stdout); }

int main() {
  for (int i = 0; i < 700; i++) numbers.Add(i);
  for (int i = 0; i < 400; i++) *names.Add() = std::to_string(i) + " is a name that is long enough";
  names.RemoveLast();
  printf("numbers %d %d %zu\n", numbers.size(), numbers.Capacity(), 8 + numbers.Capacity() * sizeof(int));
  printf("names %d %d %zu\n", names.size(), names.Capacity(), 8 + 8 * names.Capacity() + 400 * sizeof(std::string));
  filled();
}
