// A line that loops and throws, whose seldom run part the compiler puts in front of its function.
#include <stdexcept>
#include <string>
// flags: -O2

static volatile long total;

struct Count {
    long *at;
    ~Count() { ++*at; }
};

static inline int may_throw(int i) {
    if (i % 3 == 0)
        throw std::runtime_error("three" + std::to_string(i));
    return i;
}

__attribute__((noinline)) void splits(int n) {
    long left = 0;
    for (int i = 1; i <= n; i++) {
        try {
            Count count{&left};
            left += may_throw(i);
        } catch (const std::exception &e) {
            left += e.what()[0];
        }
    }
    total = left;
}

int main() {
    splits(9);
}
