// A vector and bits that no variable but a function's parameters leads to, by reference; the program prints what it knows.
#include <cstdio>
#include <memory>
#include <vector>

// flags: -O0 -g -std=c++17
struct Hidden {
    std::vector<std::vector<int>> rows;
    std::vector<bool> bits;
};

std::vector<int> made() { return std::vector<int>(3); }

void look(const std::vector<std::vector<int>> &rows, std::vector<bool> &&bits) {
    printf("bits %zu of %zu\n", bits.size(), bits.capacity());
    fflush(stdout);
    asm volatile("" : : "r"(&rows));
}

void *hide() {
    Hidden *hidden = new Hidden;
    hidden->rows.assign(20, std::vector<int>(100));
    hidden->bits.resize(100001);
    return hidden;
}

int main() {
    void *hidden = hide();
    if (hidden == made().data()) return 1;
    look(static_cast<Hidden *>(hidden)->rows, std::move(static_cast<Hidden *>(hidden)->bits));
}
