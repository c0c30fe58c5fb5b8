// Holders in frames, registers and a thread, each of a known size: heap_frames [COUNT] prints "holds NAME BYTES" for each,
// then "ready".
#include <cstdio>
#include <cstdlib>
#include <list>
#include <malloc.h>
#include <map>
#include <pthread.h>
#include <string>
#include <vector>

struct Task {
    long weight[4];
};

struct XorList {
    struct Node {
        Node *both; // the XOR of the addresses of its neighbours
        long value;
    };
    Node *first = nullptr;
    void add(long value);
};

__attribute__((noinline)) void XorList::add(long value) {
    Node *node = new Node{first, value};
    if (first)
        first->both = (Node *)((size_t)first->both ^ (size_t)node);
    first = node;
}

static XorList crossed;
static std::map<int, Task> everywhere;
static int count = 2000;
static pthread_barrier_t filled;

static size_t in_use() {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static void say(const char *name, size_t before) {
    printf("holds %s %zu\n", name, in_use() - before);
    fflush(stdout); // its buffer exists since the start
}

__attribute__((noinline)) static void *run(void *) {
    void *volatile first = malloc(100); // makes the arena of the thread
    free(first);
    size_t before = in_use();
    std::vector<std::string> lines;
    lines.reserve(count);
    for (int n = 0; n < count; n++)
        lines.emplace_back(50 + n % 7, 'l');
    __asm__ volatile("" ::"r"(&lines) : "memory"); // in memory, and not in pieces in several registers
    say("lines", before);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&filled); // never
    return lines.empty() ? nullptr : &filled;
}

__attribute__((noinline)) static int serve(std::map<int, Task> &tasks, const Task *observed) {
    size_t before = in_use();
    Task *buffer = new Task[count];
    say("buffer", before);
    pthread_t thread;
    pthread_create(&thread, nullptr, run, nullptr);
    pthread_barrier_wait(&filled);
    printf("ready\n");
    fflush(stdout);
    char line[8];
    int read = fgets(line, sizeof line, stdin) != nullptr;
    read += int(buffer[tasks.size() % count].weight[0] + observed->weight[0]);
    delete[] buffer;
    return read;
}

__attribute__((noinline)) static int work() {
    size_t before = in_use();
    std::list<long> numbers;
    for (int n = 0; n < count; n++)
        numbers.push_back(n);
    say("numbers", before);
    before = in_use();
    std::map<int, Task> tasks;
    for (int n = 0; n < count; n++)
        tasks[n];
    say("tasks", before);
    return serve(tasks, &tasks.find(count / 2)->second) + int(numbers.size() + tasks.size());
}

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOFBF, 4096);
    setvbuf(stdin, nullptr, _IOFBF, 4096);
    if (argc > 1)
        count = atoi(argv[1]);
    pthread_barrier_init(&filled, nullptr, 2);
    printf("%d\n", count);
    fflush(stdout);
    size_t before = in_use();
    for (int n = 0; n < count; n++)
        everywhere[n];
    say("everywhere", before);
    for (int n = 0; n < 10; n++)
        crossed.add(n);
    return work() < 0;
}
