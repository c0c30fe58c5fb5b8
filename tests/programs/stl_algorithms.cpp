// Algorithms and lambdas: loops that lie in headers, and several in one line.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>
#define APART __attribute__((noinline))

static volatile int sink;

APART int f1(std::vector<int> &values) {
    std::sort(values.begin(), values.end(), [](int a, int b) { return a > b; });
    int sum = std::accumulate(values.begin(), values.end(), 0);
    values.erase(std::remove_if(values.begin(), values.end(), [](int one) { return one % 3 == 0; }), values.end());
    return sum;
}

APART int f2(const std::vector<int> &values) {
    std::vector<int> twice(values.size());
    std::transform(values.begin(), values.end(), twice.begin(), [](int one) { return 2 * one; });
    auto found = std::find_if(twice.begin(), twice.end(), [&](int one) { return one == 2 * values.back(); });
    return found == twice.end() ? 0 : *found;
}

APART int f3(int n) {
    std::array<int, 40> squares{};
    for (int i = 0; i < n; i++) squares[i] = i * i;
    int odd = std::count_if(squares.begin(), squares.end(), [](int one) { return one & 1; });
    for (int one : squares) sink = sink + one;
    return odd;
}

APART int f4(std::function<int(int)> work, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += work(i);
    std::vector<int> filled(n, sum); std::fill(filled.begin(), filled.end(), 7); sum += filled[n / 2];
    std::reverse(filled.begin(), filled.end());
    return sum;
}

APART void f5(std::vector<std::vector<int>> &rows) {
    for (auto &row : rows)
        for (auto &one : row)
            one = one * 3 + 1;
    std::for_each(rows.begin(), rows.end(), [](std::vector<int> &row) { row.push_back(0); row.shrink_to_fit(); });
    rows.pop_back();
}

int main() {
    std::vector<int> values(12);
    std::iota(values.begin(), values.end(), 1);
    sink = f1(values);
    sink = f2(values);
    sink = f3(40);
    sink = f4([](int one) { return one * one; }, 10);
    std::vector<std::vector<int>> rows(3, std::vector<int>(3, 1));
    f5(rows);
    return 0;
}
