// Holders of blocks with known owners; each is deleted at a line "d", and what malloc gets back is printed.
//
// usage: heap_owners [COUNT]; prints what it has lost on purpose, then "ready".
#include <alloca.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <malloc.h>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <unordered_map>
#include <vector>

struct Branch {
    std::unique_ptr<Branch> left, right;
    char weight[40];
};

struct Partner {
    std::shared_ptr<Partner> other;
    char weight[200];
};

struct Task {
    virtual ~Task() {}
    char weight[100];
};

struct Lost {
    Lost *next = nullptr;
    char weight[48];
};

std::unique_ptr<Branch> branches;
std::shared_ptr<Partner> partners;
std::map<int, Task> tasks;
std::list<long> numbers;
std::unordered_map<int, std::string> names;
std::vector<std::string> texts;
thread_local std::vector<int *> *cells;
std::vector<Task *> seen;

static size_t in_use() {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static std::unique_ptr<Branch> grow(int depth) {
    auto one = std::make_unique<Branch>();
    if (depth > 1) {
        one->left = grow(depth - 1);
        one->right = grow(depth - 1);
    }
    return one;
}

static size_t lost_bytes, lost_blocks, lost_structures;

static Lost *lose(Lost *next) {
    Lost *one = new Lost;
    one->next = next;
    lost_bytes += malloc_usable_size(one) + 8;
    lost_blocks++;
    return one;
}

__attribute__((noinline)) static void plant(int count) {
    for (int n = 0; n < count; n++)
        lose(nullptr);
    lost_structures += count;
    for (int n = 0; n < count; n++)
        lose(lose(lose(nullptr)));
    lost_structures += count;
    Lost *last = lose(nullptr), *first = last;
    for (int n = 0; n < count; n++)
        first = lose(first);
    last->next = first;
    lost_structures++;
}

__attribute__((noinline)) static void fill(int count) {
    branches = grow(12);
    partners = std::make_shared<Partner>();
    partners->other = std::make_shared<Partner>();
    partners->other->other = partners;
    for (int n = 0; n < count; n++) {
        tasks[n * 7919 % 1000003];
        numbers.push_back(n);
        names[n] = std::string(60, 'n');
        texts.push_back(std::string(100, 't'));
    }
    for (auto &one : tasks)
        if (one.first % 5 == 0)
            seen.push_back(&one.second);
    cells = new std::vector<int *>;
    for (int n = 0; n < count; n++)
        cells->push_back(new int[9]());
}

__attribute__((noinline)) static void scrub() {
    volatile char *room = (volatile char *)alloca(1 << 16);
    for (int n = 0; n < 1 << 16; n++)
        room[n] = 0;
}

template <typename Delete> static void freed(const char *name, Delete remove) {
    size_t before = in_use();
    remove();
    printf("freed %s %zu\n", name, before - in_use());
}

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int count = argc > 1 ? atoi(argv[1]) : 2000;
    fill(count);
    plant(count / 4);
    scrub();
    printf("lost %zu %zu %zu\nready\n", lost_blocks, lost_bytes, lost_structures);
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        freed("seen", [] { std::vector<Task *>().swap(seen); });
        freed("branches", [] { branches.reset(); });
        freed("tasks", [] { tasks.clear(); });
        freed("numbers", [] { numbers.clear(); });
        freed("names", [] { std::unordered_map<int, std::string>().swap(names); });
        freed("texts", [] { std::vector<std::string>().swap(texts); });
        freed("partners", [] {
            partners->other->other.reset();
            partners.reset();
        });
        freed("cells", [] {
            for (int *one : *cells)
                delete[] one;
            delete cells;
        });
        printf("done\n");
    }
}
