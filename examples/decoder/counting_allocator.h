// An allocator that counts what a container's nodes take from the heap.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

struct HeapCount {
  std::atomic<long> blocks{0};
  std::atomic<long> bytes{0};  // as requested from operator new, headers left out
};

// For node-based containers (map, set, list): each node is one block of sizeof(Node) bytes.
//
// It counts where the container constructs and destroys a node, not where it allocates one: so no
// frame of ours stands between operator new and the line that inserts, and the call path that a heap
// profiler sees is the path of an ordinary std::map.
template <typename Node, HeapCount& count>
struct CountingAllocator : std::allocator<Node> {
  template <typename Other>
  struct rebind {
    using other = CountingAllocator<Other, count>;
  };

  CountingAllocator() = default;
  template <typename Other>
  CountingAllocator(const CountingAllocator<Other, count>&) {}

  template <typename Value, typename... Args>
  void construct(Value* place, Args&&... args) {
    count.blocks += 1;
    count.bytes += sizeof(Node);
    ::new (static_cast<void*>(place)) Value(std::forward<Args>(args)...);
  }

  template <typename Value>
  void destroy(Value* place) {
    place->~Value();
    count.blocks -= 1;
    count.bytes -= sizeof(Node);
  }
};
