// Global variables of several kinds, each of which leads to blocks whose addresses it says.
#include <cstdio>
#include <cstdlib>
#include <map>
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

int main() {
    Decoder::instance_ = new Decoder{1, malloc(700)};
    codec::rows.resize(500);
    for (int n = 0; n < 50; n++)
        table[n] = n;
    pair_of_blocks.first = malloc(100);
    pair_of_blocks.second = malloc(900);
    hidden = malloc(300);
    printf("%p %p %p %p\nready\n", static_cast<void *>(Decoder::instance_), static_cast<void *>(codec::rows.data()),
           pair_of_blocks.second, hidden);
    fflush(stdout);
    getchar();
    return static_cast<char *>(hidden)[0];
}
