// Conditions that compilers test together with the one in front of them: of a call, and of what leads to it.
#include <stdio.h>
#include <stdlib.h>

struct door { int state, moves; };

static long entered, left, passed, closed, tested;

static inline void enter(struct door *d, int state) {
  if (state == 3)
    return;
  d->state = state;
  d->moves++;
}

static inline void leave(struct door *d, int state) {
  if (state == 1)
    return;
  d->state = state;
  d->moves += 2;
}

static inline void pass(struct door *d, int state) {
  if (state == 2)
    return;
  d->moves += 3;
}

static inline void shut(struct door *d, int state) {
  if (state == 3)
    return;
  d->moves += 5;
  d->state = 0;
}

static inline int is_open(struct door *d, int state) {
  if (state == 1)
    return 0;
  d->state = state;
  return 1;
}

__attribute__((noinline)) static void visit(struct door *d, unsigned event, int state) {
  if (event & 1)
    enter(d, state);
}

__attribute__((noinline)) static void visits(struct door *d, const unsigned *events, int number) {
  int state = d->state;
  for (int i = 0; i < number; i++) {
    if (events[i] & 4)
      continue;
    leave(&d[i & 3], state);
    state = i & 7;
  }
}

__attribute__((noinline)) static void goes(struct door *d, unsigned event, int state) {
  if (event & 2) {
    d->moves ^= 64;
  } else
    pass(d, state);
}

__attribute__((noinline)) static void closes(struct door *d, unsigned event, int state) {
  if (event & 8)
    return;
  shut(d, state);
}

__attribute__((noinline)) static void tests(struct door *d, unsigned event, int state) {
  if ((event & 16) && is_open(d, state))
    d->moves += 7;
}

int main(int argc, char **argv) {
  struct door doors[4] = {{0, 0}};
  unsigned seed = argc, events[40];
  long sum = 0;
  (void)argv;
  for (int n = 0; n < 40; n++) {
    seed = seed * 1103515245u + 12345u;
    events[n] = seed >> 12;
    entered += events[n] & 1;
    left += !(events[n] & 4);
    passed += !(events[n] & 2);
    closed += !(events[n] & 8);
    tested += (events[n] & 16) != 0;
    visit(&doors[n & 3], events[n], n % 5);
    goes(&doors[n & 3], events[n], n % 6);
    closes(&doors[n & 3], events[n], n % 7);
    tests(&doors[n & 3], events[n], n % 5);
  }
  visits(doors, events, 40);
  for (int n = 0; n < 4; n++)
    sum += doors[n].moves;
  fprintf(stderr, "%ld\n", sum);
  printf("enter %ld\nleave %ld\npass %ld\nshut %ld\nis_open %ld\n", entered, left, passed, closed, tested);
}
