// Allocates blocks of known sizes at known lines, and says how many bytes each line has allocated for whom.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <vector>

struct Node {
    Node *next;
    char data[33];
};

std::map<int, char *> table;
std::vector<void *> freed;
Node *chain;
void **generated;  // memory as a just-in-time compiler has it

struct Decoder {
    int level;
    Node *first;
    static Decoder *instance_;
};
Decoder *Decoder::instance_;

__attribute__((noinline)) Node *make_node(Node *next) {
    Node *made = static_cast<Node *>(malloc(sizeof(Node)));  // the line of nodes
    *const_cast<Node *volatile *>(&made->next) = next;
    return made;
}

__attribute__((noinline)) void fill(int count) {
    for (int n = 0; n < count; n++) {
        table[n] = static_cast<char *>(malloc(51));  // the line of texts
        table[n][0] = 'x';
        chain = make_node(chain);
        freed.push_back(malloc(100));
    }
    for (void *one : freed)
        free(one);
    freed.clear();
}

__attribute__((noinline)) void lose(int count) {
    for (int n = 0; n < count; n++) {
        Node *volatile lost = make_node(make_node(nullptr));  // the line of what is lost
        lost = nullptr;
    }
}

__attribute__((noinline)) void overwrite() {
    volatile char stack[65536];
    for (volatile char &one : stack)
        one = 0;
}

void stop_here() {
    puts("stopped");
    fflush(stdout);
}

int main(int argc, char **argv) {
    const int count = argc > 1 ? atoi(argv[1]) : 1000, lost = 7;
    fill(count);
    generated = static_cast<void **>(
        mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    generated[5] = malloc(77);  // the line of what generated code holds
    Decoder::instance_ = new Decoder{1, make_node(nullptr)};  // the line of the decoder
    lose(lost);
    overwrite();
    printf("texts %d nodes %d lost %d\n", count, count, 2 * lost);
    stop_here();
    if (argc > 2)
        getchar();
    stop_here();
    return 0;
}
