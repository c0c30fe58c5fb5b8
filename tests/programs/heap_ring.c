// A ring of the last COUNT nodes: how many there is room for, the slots, and which of them is written next. It owns
// the nodes together with a list of them. With three words like these, a vector of Rust would not use what is behind.
//
// usage: heap_ring [COUNT]
#include <stdio.h>
#include <stdlib.h>

struct Node {
    char text[72];
};
struct {
    size_t room;
    struct Node **slots;
    size_t next;
} ring;
struct Node **listed;

int main(int count, char **arguments) {
    ring.room = count > 1 ? strtoul(arguments[1], 0, 0) : 2000;
    ring.slots = malloc(ring.room * sizeof *ring.slots);
    listed = malloc(ring.room * sizeof *listed);
    for (size_t n = 0; n < ring.room; n++) {
        ring.slots[n] = listed[n] = malloc(sizeof(struct Node));
        ring.slots[n]->text[0] = 0;
    }
    ring.next = ring.room / 4;
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
