// Touches, after main has begun, memory that it had from the start: no request is made for it.
#include <string.h>

static char room[8 << 20];

int main(void) {
  memset(room, 1, sizeof room);  // here
  return room[5] - 1;
}
