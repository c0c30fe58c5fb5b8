// Blocks of known types, so many of each: objects with virtual functions, nodes of maps and lists, vectors, the rest.
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <set>
#include <vector>
#include <unistd.h>

// flags: -O0
namespace shapes {
struct Shape {
    virtual ~Shape() {}
    long size = 1;
};
struct Circle : Shape {
    double radius[4] = {};
};
struct Named {
    virtual const char *name() { return ""; }
    virtual ~Named() {}
};
template <class T> struct Box : Shape, Named {
    T value{};
};
} // namespace shapes
namespace {
struct Hidden : shapes::Shape {};
} // namespace

static std::vector<void *> kept;
std::map<int, int> numbers;
std::set<long> alone;
std::list<double> values;
void ready() {
    printf("pid %d\n", getpid());
    puts("ready");
    fflush(stdout);
}

int main(int argc, char **) {
    kept.reserve(10000);
    for (int i = 0; i < 3000; i++) kept.push_back(new shapes::Circle);
    for (int i = 0; i < 2000; i++) kept.push_back(new shapes::Box<long>);
    for (int i = 0; i < 100; i++) kept.push_back(new Hidden);
    for (int i = 0; i < 700; i++) numbers[i * 7919 % 10007] = i;
    alone.insert(1);
    for (int i = 0; i < 600; i++) values.push_back(i);
    for (int i = 0; i < 500; i++) kept.push_back(calloc(1, 100));
    ready();
    if (argc > 1) pause();
    return 0;
}
