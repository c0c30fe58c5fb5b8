// Takes blocks of 248 bytes, frees every second one, then the others: what malloc keeps at each point is known.
#include <cstdio>
#include <cstdlib>
#include <vector>

// flags: -O0
static const int COUNT = 40000, SIZE = 248;
std::vector<void *> blocks;

void filled() { asm volatile(""); }
void holed() { asm volatile(""); }

int main() {
    for (int round = 0; round < 2; round++) {
        blocks.reserve(COUNT << round);
        for (int i = 0; i < COUNT; i++) {
            char *block = (char *)malloc(SIZE);
            for (int at = 0; at < SIZE; at += 8) block[at] = 1;
            blocks.push_back(block);
        }
        filled();
        for (int i = 1; i < COUNT; i += 2) free(blocks[i]);
        holed();
        for (int i = 0; i < COUNT; i += 2) free(blocks[i]);
        blocks.clear();
    }
    puts("done");
    return 0;
}
