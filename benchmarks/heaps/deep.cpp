// A std::list, or with "chain" a list that leads one way, of COUNT blocks; prints "ready" and waits.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>

struct Node {
    Node *next;
    long value[2];
};

static std::list<long> numbers;
static Node *chain;

int main(int, char **arguments) {
    long count = atol(arguments[1]);
    bool is_chain = !strcmp(arguments[2], "chain");
    for (long n = 0; n < count; n++)
        if (is_chain)
            chain = new Node{chain, {n, n}};
        else
            numbers.push_back(n);
    puts("ready");
    fflush(stdout);
    getchar();
}
