// Containers of the standard library, filled and emptied by lines into which most of their code is inlined.
#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#define APART __attribute__((noinline))

std::vector<std::string> strings;
std::map<int, std::string> tree;
std::unordered_map<std::string, int> hashed;
std::list<int> linked;
std::deque<std::string> queue;

APART void f1(int n) {
    for (int i = 0; i < n; i++)
        strings.push_back(std::string(100, 'a'));
    strings.reserve(20 * n);
}

APART void f2(int n) {
    for (int i = 0; i < n; i++)
        tree[i] = std::string(100, 'c');
    tree.erase(1);
}

APART void f3(int n) {
    for (int i = 0; i < n; i++)
        hashed[std::to_string(i)] += i;
    hashed.rehash(1000);
}

APART void f4(int n) {
    for (int i = 0; i < n; i++)
        linked.push_back(i);
    linked.pop_front();
}

APART void f5(int n) {
    for (auto &one : strings)
        one += "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
    strings.pop_back();
    if (n > 1000) strings.clear();
}

APART void f6(int n) {
    std::vector<std::unique_ptr<int[]>> owned;
    for (int i = 0; i < n; i++)
        owned.push_back(std::make_unique<int[]>(20));
    owned.clear();
}

APART void f7(int n) {
    while (!queue.empty())
        queue.pop_back();
    for (int i = 0; i < n; i++)
        queue.emplace_back(50, 'x');
    queue.clear();
}

APART void f8(int n) {
    std::vector<int> odd;
    for (int i = 0; i < n; i++)
        if (i % 2)
            odd.push_back(n - i);
    std::sort(odd.begin(), odd.end());
}

static volatile int times = 3;

int main() {
    const int n = times;
    f1(n), f2(n), f3(n), f4(n), f5(n), f6(n), f7(n), f8(n);
    return strings.empty();
}
