// Functions of which the compiler leaves nothing in some calls, and one that does what a macro beside it does, too.
// flags: -g -O2
#include <stdio.h>
#include <stdlib.h>

volatile long narrow, wide, tables;

static int fits(long value) { return value >= -128 && value <= 127; }

void emit(long value) {
  if (fits(value))
    ++narrow;
  else
    ++wide;
}

__attribute__((noinline)) void constant(void) { emit(1); }

__attribute__((noinline)) void operand(long value) {
  if (value & 1) emit(value);
  emit(value * 20);
}

struct table {
  long size, used;
  void *volatile rows;
};

__attribute__((noinline)) void create(struct table *table, long size) {
  table->size = size;
  table->rows = calloc(size, sizeof(long));
}

#define NEW_TABLE(table) (create(table, 7), fill(table, 7))

__attribute__((noinline)) void fill(struct table *table, long count) { table->used = count; }

static void open_table(struct table *table) {
  create(table, 4);
  for (long row = 0; row < 4; ++row) fill(table, row);
  ++tables;
}

__attribute__((noinline)) void prepare(struct table *first, struct table *second) {
  NEW_TABLE(first);
  open_table(second);
}

int main(int argc, char **argv) {
  (void)argv;
  for (long value = argc; value < 20; ++value) {
    operand(value);
    if (value % 4 == 0) constant();
  }
  for (int round = 0; round < 3; ++round) {
    struct table first, second;
    prepare(&first, &second);
    free(first.rows);
    free(second.rows);
  }
  printf("fits %ld\nopen_table %ld\n", narrow + wide, tables);
  return 0;
}
