// Global variables of several kinds, each of which leads to blocks whose addresses it says.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

struct Decoder {
    int level;
    void *first;
    static Decoder *instance_;
};
Decoder *Decoder::instance_;
namespace codec {
std::vector<long> rows;
}
std::map<int, int> table;
struct Pair {
    long count;
    void *first, *second;
} pair_of_blocks;
static void *hidden;
void *nothing;

// What members, elements and pointers lead to.
struct Base {
    long weight;
    void *of_base;
};
struct Item : Base {
    char small;
    struct {
        void *of_nameless;
    };
    union {
        long number;
        void *of_union;
    };
    unsigned bits : 3;
    static void *of_class;
};
void *Item::of_class;
struct Table {
    Item items[4];
    Item *rows[2][3];
    Item **list;
    Table *next;
};
typedef Table Named;
Named whole;
Named &reference = whole;
std::unique_ptr<Item> owned;
thread_local Table of_thread;

static void say(const char *name, void *at) { printf("%s %p\n", name, at); }

static void fill_members() {
    static Item counter; // of a function
    say("fill_members()::counter.of_base", counter.of_base = malloc(48));
    say("whole.items[3].of_base", whole.items[3].of_base = malloc(61));
    say("whole.items[0].of_nameless", whole.items[0].of_nameless = malloc(62));
    say("whole.items[2].of_union", whole.items[2].of_union = malloc(63));
    say("whole.rows[1][2]", whole.rows[1][2] = new Item());
    say("*whole.rows[1][2]", whole.rows[1][2]->of_base = malloc(64));
    say("whole.rows[1][2]->of_base", whole.rows[1][2]->of_base);
    say("(*whole.rows[1][2]).of_base", whole.rows[1][2]->of_base);
    say("reference.rows[1][2]->of_base", whole.rows[1][2]->of_base);
    whole.list = new Item *[5]();
    say("whole.list[4]", whole.list[4] = new Item());
    whole.next = new Table();
    say("whole.next->list", whole.next->list = whole.list);
    say("heap_expressions!whole.next->list[4]", whole.list[4]);
    owned.reset(new Item());
    say("of_thread.items[1].of_base", of_thread.items[1].of_base = malloc(65));
    say("of_thread", of_thread.items[1].of_base);
}

int main() {
    Decoder::instance_ = new Decoder{1, malloc(700)};
    codec::rows.resize(500);
    for (int n = 0; n < 50; n++)
        table[n] = n;
    pair_of_blocks.first = malloc(100);
    pair_of_blocks.second = malloc(900);
    hidden = malloc(300);
    printf("%p %p %p %p\n", static_cast<void *>(Decoder::instance_), static_cast<void *>(codec::rows.data()),
           pair_of_blocks.second, hidden);
    fill_members();
    puts("ready");
    fflush(stdout);
    getchar();
    return static_cast<char *>(hidden)[0];
}
