// Lines that gdb's `next` goes over by single instructions: a loop inlined from another function, and one on one line.
#include <cstdio>
#include <vector>

static inline __attribute__((always_inline)) double weigh(const std::vector<double> &numbers) {
    double sum = 0;
    for (size_t at = 0; at < numbers.size(); at++) sum += numbers[at] * numbers[at];
    return sum;
}

__attribute__((noinline)) double twice(const std::vector<double> &numbers) {
    double sum = 1;
    sum += weigh(numbers);
    sum *= 2;
    return sum;
}

int main() {
    std::vector<double> numbers(3000000, 1.5);
    std::printf("%f\n", twice(numbers));
    for (volatile long turns = 2000000; turns > 0;) turns = turns - 1;
    return 0;
}
