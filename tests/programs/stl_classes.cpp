// Classes with inline members, templates, virtual functions, operators, recursion, and functions that are always inlined.
#include <memory>
#include <vector>
#define APART __attribute__((noinline))
#define ALWAYS inline __attribute__((always_inline))

static volatile int sink;

struct Point {
    double x = 0, y = 0;
    Point operator+(const Point &other) const { return {x + other.x, y + other.y}; }
    Point &operator*=(double factor) {
        x *= factor;
        y *= factor;
        return *this;
    }
};

struct Shape {
    virtual ~Shape() = default;
    virtual int corners() const = 0;
};

struct Polygon : Shape {
    explicit Polygon(int n) : points(n) {}
    int corners() const override { return static_cast<int>(points.size()); }
    std::vector<Point> points;
};

struct Circle final : Shape {
    int corners() const override { return 0; }
};

ALWAYS int twice(int n) {
    int result = n;
    result += n;
    return result;
}

ALWAYS int often(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += twice(i);
    return sum;
}

template <typename T> T largest(const std::vector<T> &values) {
    T best{};
    for (const T &one : values)
        if (best < one)
            best = one;
    return best;
}

APART int f1(int n) {
    int sum = twice(n);
    sum += often(n);
    sink = sum; sum += often(3) + twice(4);
    return sum;
}

APART Point f2(int n) {
    Point sum;
    for (int i = 0; i < n; i++)
        sum = sum + Point{1.0 * i, 2};
    sum *= 0.5;
    return sum;
}

APART int f3(int n) {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < n; i++) {
        if (i % 2)
            shapes.push_back(std::make_unique<Polygon>(i));
        else
            shapes.push_back(std::make_unique<Circle>());
    }
    int corners = 0;
    for (const auto &shape : shapes) corners += shape->corners();
    return corners;
}

APART int f4(int n) {
    if (n < 2)
        return n;
    return f4(n - 1) + f4(n - 2);
}

APART int f5(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        switch (i % 5) {
        case 0: sum += 1; break;
        case 1: sum += sink; break;
        case 2: continue;
        case 3: sum ^= twice(i); break;
        default: sum -= 2;
        }
    }
    do sum += often(2); while (sum < 20);
    return sum;
}

int main() {
    sink = f1(4);
    sink = static_cast<int>(f2(4).x);
    sink = f3(5);
    sink = f4(4);
    sink = f5(9);
    return largest(std::vector<int>{1, 5, 2}) != 5;
}
