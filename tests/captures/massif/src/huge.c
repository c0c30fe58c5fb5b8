/* More than 4 GiB by massif's count; no page of it is touched. */
#include <stdlib.h>

int main(void) {
  void *volatile kept[6];
  for (int i = 0; i < 6; i++) kept[i] = malloc(1UL << 30);
  for (int i = 0; i < 6; i += 2) free(kept[i]);
  return 0;
}
