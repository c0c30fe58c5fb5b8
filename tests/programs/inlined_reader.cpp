// flags: -std=c++17
// S-expression reader: read_value and read_list call each other.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

struct Cell {
    enum class Tag : std::uint8_t { Num, List };
    Tag tag;
    union {
        long num;
        struct { std::uint32_t first, count; } list;
    };
};

class Reader {
public:
    Reader(const std::string &text, std::size_t cells) : at_(text.c_str()), cells_(cells) {}

    void read_value()
    {
        if (*at_ == '(') {
            ++at_;
            read_list();
            return;
        }
        long v = 0;
        while (*at_ >= '0' && *at_ <= '9')
            v = v * 10 + (*at_++ - '0');
        cells_[used_].tag = Cell::Tag::Num;
        cells_[used_++].num = v;
    }

    void read_list()
    {
        const std::uint32_t first = used_;
        std::uint32_t count = 0;
        deepest_ = std::max(deepest_, ++depth_);
        while (*at_ != ')') {
            if (*at_ == ' ') {
                ++at_;
                continue;
            }
            read_value();
            ++count;
        }
        ++at_;
        --depth_;
        cells_[used_].tag = Cell::Tag::List;
        cells_[used_++].list = {first, count};
    }

    const std::vector<Cell> &cells() const { return cells_; }
    unsigned deepest() const { return deepest_; }

private:
    const char *at_;
    std::uint32_t used_ = 0;
    unsigned depth_ = 0, deepest_ = 0;
    std::vector<Cell> cells_;
};

// Writes one list, returns how many numbers it wrote.
static unsigned generate(std::string &out, std::uint32_t &s, int depth)
{
    unsigned atoms = 0;
    out += '(';
    for (int i = 0; i < 4; ++i) {
        s = s * 1664525u + 1013904223u;
        if (i)
            out += ' ';
        if (depth > 0 && (s >> 29) < 4)
            atoms += generate(out, s, depth - 1);
        else
            out += std::to_string(s >> 22), ++atoms;
    }
    out += ')';
    return atoms;
}

int main(int argc, char **)
{
    std::string text;
    std::uint32_t seed = 12u + static_cast<unsigned>(argc);
    const unsigned atoms = generate(text, seed, 5);
    const auto lists = static_cast<unsigned>(std::count(text.begin(), text.end(), '('));

    Reader rd(text, atoms + lists);
    rd.read_value();
    long sum = 0;
    for (const Cell &c : rd.cells())
        sum += c.tag == Cell::Tag::Num ? c.num : -long(c.list.count);
    std::fprintf(stderr, "cells %zu deepest %u sum %ld\n", rd.cells().size(), rd.deepest(), sum);
    std::printf("Reader::read_value %u\nReader::read_list %u\n", atoms + lists, lists);
}
