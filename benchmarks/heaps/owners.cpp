// A heap of about COUNT blocks: a tree, maps, strings, vectors, and lost pairs of blocks; prints "ready" and waits.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

struct Tree {
    std::unique_ptr<Tree> left, right;
    long value[3];
};

struct Lost {
    Lost *next;
    long weight[6];
};

static std::unique_ptr<Tree> root;
static std::map<long, std::string> names;
static std::unordered_map<long, std::shared_ptr<std::string>> table;
static std::vector<std::vector<int>> rows;
static std::vector<std::shared_ptr<std::string>> seen;
static unsigned seed = 1;

static unsigned some() { return seed = seed * 1664525u + 1013904223u; }

static void grow(std::unique_ptr<Tree> &tree, long count) {
    if (!count)
        return;
    tree.reset(new Tree);
    long left = count > 1 ? (some() >> 4) % count : 0;
    grow(tree->left, left);
    grow(tree->right, count - 1 - left);
}

int main(int, char **arguments) {
    long count = atol(arguments[1]);
    grow(root, count * 3 / 10);
    for (long n = 0; n < count / 10; n++)
        names[some()] = std::string(40 + n % 50, 'x');
    for (long n = 0; n < count / 10; n++) {
        table[n] = std::make_shared<std::string>(30 + n % 60, 'y');
        if (n % 3 == 0)
            seen.push_back(table[n]);
    }
    rows.resize(count / 10);
    for (auto &row : rows)
        row.resize(2 + some() % 30);
    for (long n = 0; n < count / 50; n++) {
        Lost *one = new Lost{}, *other = new Lost{};
        one->next = other;
        if (n % 2)
            other->next = one;
        asm volatile("" ::"r"(one), "r"(other) : "memory");
    }
    puts("ready");
    fflush(stdout);
    getchar();
}
