// Functions of a header that call each other.
#include <cstdlib>

static inline void drop(void *p) { free(p); }

static inline void drop_both(void *p, void *q) {
  drop(p);
  drop(q);
}
