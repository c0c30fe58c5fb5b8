// flags: -shared -fPIC
// A library with 16 MiB of data for each thread.
static __thread char large[16 << 20];

int touch(int at) { return large[at]++; }
