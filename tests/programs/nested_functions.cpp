// Lambdas in lambdas and a class within a function: their code is their own, though they are declared in others.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

static std::vector<std::unique_ptr<char[]>> kept;

template <class Action> static void each(int count, Action action) {
    for (int n = 0; n < count; n++)
        action(n);
}

struct Store {
    std::vector<std::string> names;

    void load() {
        each(30, [this](int n) {
            each(3, [this, n](int m) {
                names.push_back(std::string(100 + m, 'x'));
                kept.emplace_back(new char[n + 200]);
            });
        });
    }
};

__attribute__((noinline)) void stop() { __asm__(""); }

int main() {
    struct Local {
        void keep(int size) { kept.emplace_back(new char[size]); }
    };
    Store store;
    Local local;
    std::vector<int> sizes(20, 700);
    std::for_each(sizes.begin(), sizes.end(), [&](int size) { [&] { local.keep(size); }(); });
    store.load();
    stop();
    std::printf("%zu\n", kept.size());
    return 0;
}
