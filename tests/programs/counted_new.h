// Counts the bytes that operator new has given out and not got back.
#pragma once
#include <cstdlib>
#include <new>

static long given;
void *operator new(size_t size) {
    size_t *block = (size_t *)malloc(size + 16);
    *block = size;
    given += size;
    return block + 2;
}
void operator delete(void *block) noexcept {
    if (!block) return;
    given -= ((size_t *)block)[-2];
    free((size_t *)block - 2);
}
void operator delete(void *block, size_t) noexcept { operator delete(block); }
