/* Frees every second of many blocks, resizes blocks that malloc has mapped individually, and prints mallinfo's
 * figures. Variables of libc point into the heap, as after setlocale() and putenv(). */
#define _GNU_SOURCE
#include <locale.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if __GLIBC_PREREQ(2, 33)
#define FIGURES mallinfo2
#else
#define FIGURES mallinfo
#endif

enum { BLOCKS = 400, MAPPED = 3, RESIZED = 300 };

int main(void) {
    static char *blocks[BLOCKS], *mapped[MAPPED];
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 0; i < BLOCKS; i++) memset(blocks[i] = malloc(500), 2, 500);
    setenv("TZ", "UTC", 1);
    tzset();
    setenv("A_NAME", "and a value", 1);
    setlocale(LC_ALL, "C.UTF-8");
    for (int i = 0; i < BLOCKS; i += 2) free(blocks[i]);
    for (int i = 0; i < MAPPED; i++) mapped[i] = malloc(1000000);
    for (int i = 0; i < RESIZED; i++)
        for (int n = 0; n < MAPPED; n++)
            memset(mapped[n] = realloc(mapped[n], 3000001 + 10000 * i), 3, 10000);
    char line[200];
    struct FIGURES now = FIGURES();
    snprintf(line, sizeof line, "in use %zu free %zu mapped %zu %zu\nready\n", (size_t)now.uordblks,
             (size_t)now.fordblks, (size_t)now.hblks, (size_t)now.hblkhd);
    if (write(1, line, strlen(line)) < 0) return 1;
    return read(0, line, 1) < 0;
}
