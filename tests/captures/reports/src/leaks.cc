// Leaks of each kind: direct ones by malloc, new, calloc and a lambda, indirect ones below a list and a ring.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Node {
  Node *next = nullptr;
  char *text = nullptr;
};

__attribute__((noinline)) static char *copy_text(const char *from) { return strdup(from); }

__attribute__((noinline)) static Node *make_list(int length) {
  Node *head = nullptr;
  for (int i = 0; i < length; i++) {
    Node *node = new Node;
    node->text = copy_text("a text of some length");
    node->next = head;
    head = node;
  }
  return head;
}

__attribute__((noinline)) static void leak_ring() {
  Node *first = new Node, *second = new Node;
  first->next = second;
  second->next = first;
}

namespace shop {
template <class T> struct Store {
  std::vector<T> *items = new std::vector<T>();
  void fill(int count) {
    for (int i = 0; i < count; i++) items->push_back(T(100, 'x'));
  }
};
}  // namespace shop

__attribute__((noinline)) static void leak_by_lambda() {
  std::function<void(int)> leak = [](int bytes) { memset(malloc(bytes), 1, bytes); };
  for (int i = 1; i <= 7; i++) leak(i * 1000);
}

__attribute__((noinline)) static void leak_array(int bytes) {
  char *volatile buffer = new char[bytes];
  buffer[0] = 1;
  buffer = nullptr;
}

int main() {
  for (int i = 0; i < 5; i++) make_list(20);
  leak_ring();
  auto *store = new shop::Store<std::string>();
  store->fill(50);
  store = nullptr;
  leak_by_lambda();
  leak_array(123456);
  void *volatile zeros = calloc(10, 333);
  zeros = realloc(zeros, 5000);
  zeros = nullptr;
  void *volatile aligned = aligned_alloc(64, 640);
  aligned = nullptr;
  volatile char wipe[4096];
  for (int i = 0; i < 4096; i++) wipe[i] = 0;
  return 0;
}
