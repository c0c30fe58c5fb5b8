/* maps_files FILE MODE: maps 24 MiB, writes the first MiBs and reads the rest.
 *   shared: FILE, shared; private: FILE, in private, 8 MiB written; read: FILE, read only;
 *   memfd: a memfd, in private, 8 MiB written; memfd-shared: a memfd, shared; zero: /dev/zero, in private */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 24 << 20, WRITTEN = 8 << 20 };

int main(int count, char **words) {
    const char *mode = words[2];
    char line[8], *place;
    int file, sum = 0;
    if (count < 3) return 2;
    if (strncmp(mode, "memfd", 5) == 0)
        file = memfd_create("arena", 0);
    else
        file = open(strcmp(mode, "zero") == 0 ? "/dev/zero" : words[1], O_RDWR | O_CREAT, 0600);
    if (file < 0) return 1;
    if (strcmp(mode, "zero") != 0 && ftruncate(file, SIZE)) return 1;
    if (strcmp(mode, "read") == 0)
        place = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
    else
        place = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, strstr(mode, "shared") ? MAP_SHARED : MAP_PRIVATE, file, 0);
    if (place == MAP_FAILED) return 1;
    if (strcmp(mode, "read") != 0) memset(place, 1, strstr(mode, "shared") ? SIZE : WRITTEN);
    for (int at = 0; strcmp(mode, "zero") != 0 && at < SIZE; at += 4096) sum += ((volatile char *)place)[at];
    printf("pid %d\nready\n", (int)getpid());
    fflush(stdout);
    return read(0, line, sizeof line) < 0 || sum < 0;
}
