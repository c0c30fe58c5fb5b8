// flags: -O0
// Loses blocks in three ways, keeps others, and counts each itself: "round N: lost B indirect B kept B".
#include <cstdio>
#include <cstdlib>

struct Node {
  Node *next;
  char payload[104];
};

struct Table {
  char *rows[64];
};

static Table table;   // keeps a block a round alive
static char *inside;  // points only into the middle of its block
static long lost_bytes, indirect_bytes, kept_bytes;

__attribute__((noinline)) static void lose(int count) {
  for (int i = 0; i < count; ++i) {
    char *volatile block = static_cast<char *>(std::malloc(1000));  // the line that loses
    block[0] = 1;
    lost_bytes += 1000;
  }
}

__attribute__((noinline)) static void keep(int round) {
  table.rows[round] = static_cast<char *>(std::malloc(500));  // the line that keeps
  kept_bytes += 500;
}

__attribute__((noinline)) static void lose_a_list() {
  Node *head = nullptr;
  for (int i = 0; i < 5; ++i) {
    Node *node = new Node;
    node->next = head;
    head = node;
  }
  lost_bytes += sizeof(Node);          // the last, which only `head` points to
  indirect_bytes += 4 * sizeof(Node);  // the others, which only the list points to
}

// What was lost is lost for certain only when no old copy of its pointer is left on the stack.
__attribute__((noinline)) static void wipe() {
  volatile char old[4096];
  for (unsigned i = 0; i < sizeof old; ++i) old[i] = 0;
}

__attribute__((noinline)) static void round_done(int round) {
  std::printf("round %d: lost %ld indirect %ld kept %ld\n", round, lost_bytes, indirect_bytes, kept_bytes);
  std::fflush(stdout);
}

// By then no register holds an old pointer either.
__attribute__((noinline)) static void stop_here(int round) { asm volatile("" ::"r"(round)); }

int main(int argc, char **argv) {
  static char buffer[4096];
  std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);  // printf allocates nothing
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  char *local = static_cast<char *>(std::malloc(70));
  inside = static_cast<char *>(std::malloc(300)) + 10;
  kept_bytes += 70;
  for (int round = 0; round < rounds; ++round) {
    lose(round + 1);
    keep(round);
    lose_a_list();
    wipe();
    round_done(round);
    stop_here(round);
  }
  std::free(local);
  return 0;
}
