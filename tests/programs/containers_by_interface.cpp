// Containers that only a pointer to a base class leads to, or that stand in a variant, an any, a tuple; and the
// bytes that operator new gave out in all: printed, and equal to what the containers hold.
#include <any>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "counted_new.h"

// flags: -O0 -std=c++17

struct Service {
    virtual void handle(int request) = 0;
    virtual ~Service() {}
};
struct Named {
    std::string name = "a name that is too long to be kept in place";
    virtual ~Named() {}
};
namespace {
struct Cache : Service {
    std::map<int, std::vector<int>> entries;  // never erased
    void handle(int request) override { entries[request].assign(50, request); }
};
struct Log : Named, Service {  // the Service in it isn't where it begins
    std::vector<std::string> lines;
    void handle(int request) override { lines.push_back("a line of the log that takes a block " + std::to_string(request)); }
};
}
struct Counter : Service {  // holds nothing
    long count = 0;
    void handle(int) override { count++; }
};
template <class T> struct Buffer : virtual Named {  // where Named lies, only objects tell
    std::vector<T> items;
};
struct Both : Buffer<int>, virtual Named {
    std::vector<char> more;
};

struct Server {
    Service *first;
    std::vector<std::unique_ptr<Service>> services;
    std::shared_ptr<Service> made, adopted;
    std::vector<Named *> named;
    std::variant<int, std::vector<long>, Named> choice, other, nothing;
    std::any small, large, text;
    std::tuple<int, std::vector<int>, std::string> parts;
    std::pair<std::vector<int>, std::unique_ptr<Service>> pair;
    std::array<std::vector<short>, 3> fixed;
    Service *broken[6];
    std::unique_ptr<Service> gone;
    std::any *pointed;
    std::unique_ptr<std::any> owned;
};

static Server *server;
void checkpoint(int number) { printf("point %d given %ld\n", number, given); fflush(stdout); }

template <class T> T *placed() { return new (calloc(1, sizeof(T))) T(); }

static Named *both() {
    auto *made = placed<Both>();
    made->items.resize(21);
    made->more.resize(33);
    return made;
}

// Iterators lead to what is behind the last element, or was once.
template <class T> void iterate(T &all) {
    auto last = all.end(), first = all.begin();
    checkpoint(first == last ? 4 : 3);
}

int main() {
    setvbuf(stdout, nullptr, _IONBF, 0);
    server = placed<Server>();
    server->first = placed<Cache>();
    for (int i = 0; i < 30; i++) {
        if (i % 3 == 0) server->services.emplace_back(new Cache);
        if (i % 3 == 1) server->services.emplace_back(new Log);
        if (i % 3 == 2) server->services.emplace_back(new Counter);
    }
    for (auto &service : server->services)
        for (int request = 0; request < 4; request++) service->handle(request);
    server->made = std::make_shared<Log>();
    server->made->handle(1);
    server->adopted = std::shared_ptr<Service>(new Cache);
    server->adopted->handle(2);
    server->named = {both(), static_cast<Named *>(placed<Log>())};
    server->choice = std::vector<long>(17);
    server->other.emplace<2>();
    server->small = 5;
    server->large = std::map<int, int>{{1, 2}, {3, 4}, {5, 6}};
    server->text = std::string("a text that is too long to be kept in place");
    server->parts = {1, std::vector<int>(19), "another text that is too long to be kept in place"};
    server->pair.first.resize(23);
    server->pair.second.reset(new Cache);
    server->pair.second->handle(3);
    server->fixed[2].resize(29);
    server->pointed = placed<std::any>();
    *server->pointed = std::vector<int>(31);
    server->owned.reset(new std::any(std::vector<int>(37)));
    // Nothing of these is to be believed.
    auto *freed = placed<Cache>();
    free(freed);
    static long zeros[16], code[16] = {(long)&checkpoint}, strange[16] = {0x1234567812345678}, wrong[16];
    wrong[0] = *(long *)server->named[0];  // an object of a class that is no Service
    long *bad[] = {(long *)freed, zeros, code, strange, wrong, (long *)0xdeadbeef000};
    for (int i = 0; i < 6; i++) server->broken[i] = (Service *)bad[i];
    new (&server->gone) std::unique_ptr<Service>((Service *)strange);
    checkpoint(1);
    for (int request = 0; request < 2000; request++) server->first->handle(request);
    checkpoint(2);
    static std::vector<std::vector<int>> rows(1);
    new (&rows[0]) std::vector<int>(41);
    rows.reserve(2);
    new (rows.data() + 1) std::vector<int>(43);  // behind the end: of nobody
    iterate(rows);
    fflush(stdout);
    _Exit(0);
}
