// Owners into which words lead that the program no longer uses: in strings, behind the ends of vectors; and an owner
// of objects that lead to their parents, and to their children by vectors, with an observer of some. What malloc gets
// back is printed as by heap_owners.
//
// usage: heap_stale [COUNT]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <malloc.h>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

struct Element;

struct Private {  // as Qt's objects have one
    Element *self, *parent;
    std::vector<std::unique_ptr<Element>> children;
    char weight[40];
};

struct Element {
    std::unique_ptr<Private> own;
    long number;
};

struct Node {
    Node *parent;
    std::vector<std::unique_ptr<Node>> children;
    std::string text;
};

struct Job {
    long number;
    Job *previous, *next;
    char weight[60];
};

struct Queue {
    Job *first, *last;
};

struct Rows {
    std::vector<Node *> few;
    std::vector<char> bytes;
};

struct Turn {
    long number;
    Node *node;
};

struct Buffer {  // begins as a string does, and goes on with a pointer that counts
    char *text;
    size_t length, capacity;
    Buffer *next;
};

static std::unique_ptr<Element> window;
static std::unique_ptr<Node> document;
static Queue queue;
static Buffer *buffers;
static std::map<std::string, std::string> entries;
static std::vector<std::unique_ptr<Rows>> rows;
static std::vector<Node *> spare;
static std::vector<char *> texts;  // larger than what is counted in a byte
static std::deque<std::string> lines;
static std::deque<Turn> turns, moves;
static std::vector<std::string> labels;
static std::vector<char *> mapped;  // large enough for a mapping of its own
static Element *focus[2];  // an observer

static size_t in_use() {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static std::vector<Node *> nodes;

static std::unique_ptr<Element> widget(Element *parent, int depth) {
    auto one = std::make_unique<Element>();
    one->own = std::make_unique<Private>();
    one->own->self = one.get();
    one->own->parent = parent;
    for (int n = 0; depth && n < 5; n++)
        one->own->children.push_back(widget(one.get(), depth - 1));
    return one;
}

static std::unique_ptr<Node> node(Node *parent, int depth) {
    auto one = std::make_unique<Node>();
    one->parent = parent;
    one->text = std::string(50, 't');
    for (int n = 0; depth && n < 5; n++)
        one->children.push_back(node(one.get(), depth - 1));
    nodes.push_back(one.get());
    return one;
}

static void stale(std::string &text, void *to) { ((void **)&text)[3] = to; }

__attribute__((noinline)) static void fill(int count) {
    window = widget(nullptr, 5);
    document = node(nullptr, 5);
    std::vector<Job *> jobs;
    for (int n = 0; n < count; n++) {
        Job *job = new Job{n, queue.last, nullptr, {}};
        (queue.last ? queue.last->next : queue.first) = job;
        queue.last = job;
        jobs.push_back(job);
        Buffer *buffer = new Buffer{(char *)malloc(64), 10, 64, buffers};
        strcpy(buffer->text, "ten bytes.");
        buffers = buffer;
    }
    for (int n = 0; n < count; n++) {
        auto added = entries.emplace("a name that is longer than short ones " + std::to_string(n), std::string(40, 'v'));
        if (n % 5 == 0)
            stale(added.first->second, jobs[n]);
        if (n % 7 == 0)
            stale(added.first->second, window->own->children[n % 5]->own->children[n % 3].get());
    }
    for (int n = 0; n < count; n++) {
        rows.push_back(std::make_unique<Rows>());
        rows.back()->few.reserve(3);
        rows.back()->few.push_back(nullptr);
        rows.back()->bytes.resize(5);
        if (n % 3 == 0)
            rows.back()->few.data()[1] = nodes[n % nodes.size()];
        if (n % 4 == 0)
            ((void **)rows.back()->bytes.data())[1] = nodes[n % nodes.size()];
    }
    spare.reserve(200);
    for (int n = 0; n < 200; n++)
        spare.data()[n] = nodes[n % nodes.size()];
    texts.reserve(2000);
    for (int n = 0; n < 2000; n++)
        n < 1000 ? texts.push_back(nullptr) : (void)(texts.data()[n] = (char *)nodes[n % nodes.size()]);
    for (int n = 0; n < 10 * count; n++)
        lines.push_back(std::string(40, 'l'));
    while (lines.size() > 2 * (size_t)count) {
        lines.pop_front();
        (*(Node ***)&lines)[lines.size() % 300] = nodes[lines.size() % nodes.size()];
    }
    for (int n = 0; n < count; n++)
        turns.push_back({n, n > 1 ? nullptr : document.get()});
    for (int n = 0; n < 2; n++)
        turns.pop_front();
    turns.push_back({count, document.get()});
    turns.pop_back();
    moves.push_back({0, document.get()});
    moves.push_back({1, nullptr});
    moves.push_back({2, document.get()});
    moves.pop_front();
    moves.pop_back();
    for (int n = 0; n < count; n++) {
        labels.emplace_back("short");
        stale(labels.back(), nodes[n % nodes.size()]);
    }
    mapped.reserve(100000);
    for (int n = 0; n < 1000; n++)
        n < 100 ? mapped.push_back((char *)calloc(1, 200)) : (void)(mapped.data()[n] = (char *)nodes[n % nodes.size()]);
    std::vector<Node *>().swap(nodes);
    for (int n = 0; n < 2; n++)
        focus[n] = window->own->children[n]->own->children[3]->own->children[n]->own->children[0].get();
}

__attribute__((noinline)) static void scrub() {
    char room[1 << 16];
    for (int n = 0; n < 1 << 16; n++)
        ((volatile char *)room)[n] = 0;
}

template <typename Delete> static void freed(const char *name, Delete remove) {
    size_t before = in_use();
    remove();
    printf("freed %s %zu\n", name, before - in_use());
}

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    fill(argc > 1 ? atoi(argv[1]) : 2000);
    scrub();
    printf("ready\n");
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        freed("window", [] { window.reset(); });
        freed("document", [] { document.reset(); });
        freed("queue", [] {
            for (Job *job = queue.first, *next; job; job = next) {
                next = job->next;
                delete job;
            }
        });
        freed("buffers", [] {
            for (Buffer *one = buffers, *next; one; one = next) {
                next = one->next;
                free(one->text);
                delete one;
            }
        });
        freed("entries", [] { entries.clear(); });
        freed("rows", [] { std::vector<std::unique_ptr<Rows>>().swap(rows); });
        freed("texts", [] { std::vector<char *>().swap(texts); });
        freed("lines", [] { lines.~deque(); });
        freed("turns", [] { turns.~deque(); });
        freed("moves", [] { moves.~deque(); });
        freed("spare", [] { std::vector<Node *>().swap(spare); });
        freed("labels", [] { std::vector<std::string>().swap(labels); });
        freed("mapped", [] {
            for (char *one : mapped)
                free(one);
            std::vector<char *>().swap(mapped);
        });
        printf("done\n");
        fflush(stdout);
        _exit(0);
    }
}
