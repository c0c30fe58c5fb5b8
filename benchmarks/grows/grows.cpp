// Programs in C++ that become bigger in one line, when they get a line of input.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#define APART __attribute__((noinline))
static const size_t SIZE = 96ul << 20;
static std::vector<std::string> texts;
static std::map<long, std::string> table;
static std::vector<double> numbers;
static std::vector<std::unique_ptr<char[]>> kept;

// What allocates, too, but keeps nothing: heap profilers count it, the resident set doesn't grow by it.
APART void come_and_go() {
    for (int n = 0; n < 100; n++) {
        std::vector<char> block(3000, 'x');
        asm volatile("" ::"r"(block.data()) : "memory");
    }
}

APART void in_strings() {
    for (size_t n = 0; n < SIZE / 1000; n++)
        texts.push_back(std::string(900, 'x')); /* planted: strings */
}

APART void in_map() {
    for (long n = 0; n < (long)SIZE / 120; n++)
        table.emplace(n * 7919 % 1000003 + n, "a string of 30 bytes and more …"); /* planted: map */
}

APART void in_vector() {
    numbers.reserve(SIZE / sizeof(double));
    for (size_t n = 0; n < SIZE / sizeof(double); n++)
        numbers.push_back(n * 0.5); /* planted: vector */
}

APART void in_blocks() {
    for (size_t n = 0; n < SIZE / 5000; n++) {
        char *block = new char[5000];
        memset(block, 1, 5000); /* planted: blocks */
        kept.emplace_back(block);
    }
}

APART int in_depth(int level) {
    volatile char frame[16384];
    for (size_t at = 0; at < sizeof frame; at += 4096)
        frame[at] = level; /* planted: stack */
    return level > 0 ? in_depth(level - 1) + frame[4096] : 0;
}

static void in_thread() {
    std::promise<void> done;
    std::thread([&done] {
        in_depth(480);
        done.set_value();
        std::this_thread::sleep_for(std::chrono::hours(1)); // with the thread its stack would go
    }).detach();
    done.get_future().wait();
}

APART void in_parallel() {
    double *values = static_cast<double *>(malloc(SIZE));
    const long count = SIZE / sizeof(double);
#pragma omp parallel for num_threads(4)
    for (long n = 0; n < count; n++)
        values[n] = n * 0.5; /* planted: openmp */
}

APART void doubled() {
    char *text = nullptr;
    size_t length = 0;
    for (size_t room = 4096; room <= SIZE; room *= 2) {
        text = static_cast<char *>(realloc(text, room));
        for (; length < room; length++)
            text[length] = 'x'; /* planted: realloc */
    }
}

static const struct {
    const char *name;
    void (*act)();
} KINDS[] = {
    {"strings", in_strings}, {"map", in_map}, {"vector", in_vector}, {"blocks", in_blocks},
    {"stack", in_thread},
    {"openmp", in_parallel}, {"realloc", doubled},
};

int main(int, char **words) {
    char line[16];
    setvbuf(stdout, nullptr, _IONBF, 0);
    puts("ready");
    if (!fgets(line, sizeof line, stdin)) return 1;
    come_and_go();
    for (const auto &kind : KINDS)
        if (!strcmp(kind.name, words[1])) kind.act();
    come_and_go();
    puts("grew 0");
    return fgets(line, sizeof line, stdin) ? 0 : 1;
}
