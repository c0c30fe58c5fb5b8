// Vectors in every place, counted by the program itself; deques, streams and files are there to be told from them.
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <sstream>
#include <vector>

// flags: -O0 -std=c++17
static long count, capacity, slack;
template <class T> void add(const std::vector<T> &vector) {
    if (!vector.capacity()) return;
    count++;
    capacity += vector.capacity() * sizeof(T);
    slack += (vector.capacity() - vector.size()) * sizeof(T);
}

struct Node {
    int number;
    std::vector<double> weights;
    std::deque<long> queue;
};
static std::vector<Node *> nodes;
std::map<int, std::vector<char>> table;

void checkpoint() {
    printf("vectors %ld capacity %ld slack %ld\n", count, capacity, slack);
    fflush(stdout);
}

int main() {
    for (int i = 0; i < 1000; i++) {
        Node *node = new Node;
        node->number = i;
        node->weights.reserve(10 + i % 50);
        node->weights.resize(i % 10);
        node->queue.push_back(i);
        nodes.push_back(node);
    }
    for (int i = 0; i < 500; i++) table[i].resize(100 + i);
    for (int i = 0; i < 500; i += 2) table[i].clear();
    std::vector<char> local(3 << 20);
    local.clear();
    std::list<std::vector<int>> list;
    for (int i = 0; i < 50; i++) list.emplace_back(i + 1);
    std::stringstream stream;
    stream << "text";
    FILE *file = fopen("/dev/null", "w");
    fputs("text", file);
    for (Node *node : nodes) add(node->weights);
    for (auto &entry : table) add(entry.second);
    for (auto &vector : list) add(vector);
    add(nodes);
    add(local);
    checkpoint();
    return 0;
}
