// Lines that allocate and free known numbers of bytes; at the end malloc says itself how many are in use.
#include <stdlib.h>
#include <malloc.h>
#include <stdio.h>
static void *keep[20000];
#if !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif
static long used(void) { struct mallinfo2 m = mallinfo2(); return m.uordblks + m.hblkhd; }
int main(void) {
    void *a = malloc(40);
    free(a);
    a = malloc(40);
    void *b = malloc(1000000);
    free(b);
    for (int i = 0; i < 20000; i++) keep[i] = malloc(24 + i % 200);
    for (int i = 0; i < 20000; i += 2) free(keep[i]);
    printf("%ld\n", used());
    fflush(stdout);
    return a == b;
}
