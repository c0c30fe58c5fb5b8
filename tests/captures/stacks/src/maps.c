/* Holds a block of 100 MiB and a mapping of 50 MiB; another mapping was returned. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
    char *block = malloc(100 << 20);
    memset(block, 1, 4096);
    char *kept = mmap(0, 50 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *returned = mmap(0, 5 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(returned, 5 << 20);
    return kept[0] + block[0] == 7;
}
