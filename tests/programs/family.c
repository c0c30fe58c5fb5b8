/* family MEBIBYTES CHILDREN: fills memory, forks children that share it, says "ready", waits for a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *volatile memory; /* nobody reads it: a compiler might leave the writing out */

int main(int argc, char **argv) {
    size_t size = (size_t)atoi(argv[1]) << 20;
    memory = malloc(size);
    memset(memory, 1, size);
    for (int number = 0; number < atoi(argv[2]); number++) {
        if (fork() == 0) {
            memset(memory, 2, (size_t)(number + 1) << 20); /* each copies a little of it */
            for (;;)
                pause();
        }
    }
    usleep(300000);
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
