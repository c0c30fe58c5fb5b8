// Owners and values: smart pointers, optional, variant, tuples, moves; functions that are left early.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>
// flags: -std=c++17
#define APART __attribute__((noinline))

static volatile int sink;

struct Guard {
    explicit Guard(int n) : held(std::make_unique<int>(n)) { sink = n; }
    ~Guard() { sink = -*held; }
    std::unique_ptr<int> held;
};

APART std::optional<int> f1(const std::vector<int> &values, int wanted) {
    for (std::size_t i = 0; i < values.size(); i++)
        if (values[i] == wanted)
            return static_cast<int>(i);
    return std::nullopt;
}

APART int f2(std::vector<std::variant<int, std::string>> values) {
    int sum = 0;
    for (auto &one : values) {
        if (auto *number = std::get_if<int>(&one))
            sum += *number;
        else
            sum += static_cast<int>(std::get<std::string>(one).size());
    }
    values.emplace_back(std::string(40, 'z'));
    return sum + std::visit([](auto &one) { return static_cast<int>(sizeof one); }, values.back());
}

APART int f3(int n) {
    Guard outer(n);
    for (int i = 0; i < n; i++) {
        Guard inner(i);
        if (i == 1)
            continue;
        if (i == 3)
            return i;
        sink = i;
    }
    return n;
}

APART std::tuple<int, std::string> f4(const std::map<std::string, int> &counts) {
    int most = 0;
    std::string name;
    for (const auto &[key, count] : counts)
        if (count > most)
            std::tie(most, name) = std::make_pair(count, key);
    return {most, std::move(name)};
}

APART std::shared_ptr<int> f5(std::shared_ptr<int> shared, int n) {
    std::vector<std::weak_ptr<int>> watchers;
    for (int i = 0; i < n; i++) watchers.push_back(shared);
    for (auto &one : watchers)
        if (auto strong = one.lock()) ++*strong;
    shared = std::make_shared<int>(*shared + 1);
    return shared;
}

int main() {
    sink = f1({4, 5, 6, 7}, 6).value_or(-1);
    sink = f2({1, std::string("two"), 3});
    sink = f3(6);
    sink = std::get<0>(f4({{"a", 1}, {"b", 3}, {"c", 2}}));
    sink = *f5(std::make_shared<int>(1), 4);
    return 0;
}
