// Containers of every kind, reached in every way, and the bytes that operator new gave out in all: printed, and
// equal to what the containers hold.
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>
#include <malloc.h>

#include "counted_new.h"

// flags: -O0 -std=c++17

struct Arc { int label; float weight; };
struct State {
    std::vector<Arc> arcs;
    std::string name;
};
struct Node {
    std::vector<Node> children;
    Node *parent = nullptr;
};

class Decoder {
  public:
    std::map<int, std::vector<int>> task_states;
    std::unordered_map<std::string, int> words;
    std::deque<long> queue;
    void grow(int count) {
        for (int i = 0; i < count; i++) task_states[next++].assign(100, i);
        stop_here();
    }
    void stop_here() { asm volatile(""); }

  private:
    int next = 0;
};

std::vector<State> states;
static std::set<std::string> names;
namespace pool {
std::list<std::vector<double>> buffers;
}

void checkpoint(int number) { printf("point %d given %ld\n", number, given); fflush(stdout); }

int main() {
    setvbuf(stdout, nullptr, _IONBF, 0);
    Decoder decoder;
    states.resize(1000);
    for (int i = 0; i < 1000; i++) {
        states[i].arcs.resize(i % 7);
        states[i].name = "a state with a rather long name " + std::to_string(i);
    }
    for (int i = 0; i < 500; i++) names.insert("name " + std::to_string(i) + " of a set of strings");
    for (int i = 0; i < 50; i++) pool::buffers.emplace_back(1000);
    std::vector<char> cleared(3 << 20);
    cleared.clear();
    std::unique_ptr<State> owned(new State(states[3]));
    auto shared = std::shared_ptr<State>(new State(states[4]));
    std::shared_ptr<State> again = shared;
    std::optional<std::vector<int>> maybe(std::vector<int>(77));
    std::vector<short> fixed[3] = {std::vector<short>(10), std::vector<short>(20), {}};
    Node root;
    root.children.resize(3);
    for (Node &child : root.children) {
        child.parent = &root;
        child.children.resize(2);
    }
    for (int i = 0; i < 3000; i++) decoder.words["word number " + std::to_string(i)] = i;
    for (int i = 0; i < 1000; i++) decoder.queue.push_back(i);
    for (int i = 0; i < 300; i++) decoder.queue.pop_front();
    checkpoint(1);
    decoder.grow(2000);
    checkpoint(2);
    std::vector<int> late(10);
    return late.size() == 11;
}
