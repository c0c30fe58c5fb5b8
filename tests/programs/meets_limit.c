/* Keeps blocks of 3000 bytes until its control group is full, by argv[1] bytes a second (0: as fast as it can).
   The number of blocks is the first word of the file argv[2]. With argv[3] and argv[4] it waits, once it has argv[3]
   bytes, until there is a file argv[4]. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 3000, MOST = 1 << 20 };

static char *volatile kept[MOST]; /* which a debugger can read */

__attribute__((noinline)) static char *cache(void)
{
    char *block = malloc(SIZE);
    memset(block, 1, SIZE);
    return block;
}

__attribute__((noinline)) static void scratch(void)
{
    char *block = malloc(SIZE);
    memset(block, 1, SIZE);
    free(block);
}

int main(int argc, char **argv)
{
    double rate = atof(argv[1]);
    int file = open(argv[2], O_RDWR | O_CREAT, 0600);
    long count = 0, before = 0, pause = argc > 4 ? atol(argv[3]) / SIZE : -1;
    struct timespec begin, now;

    if (ftruncate(file, sizeof count))
        return 1;
    volatile long *told = mmap(NULL, sizeof count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (count < MOST) {
        kept[count] = cache();
        scratch();
        *told = ++count;
        if (count == pause) {
            while (access(argv[4], F_OK))
                usleep(10000);
            clock_gettime(CLOCK_MONOTONIC, &begin);
            before = count;
        }
        if (rate > 0 && count % 64 == 0) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            double ahead = (count - before) * SIZE / rate - (now.tv_sec - begin.tv_sec) - (now.tv_nsec - begin.tv_nsec) * 1e-9;
            if (ahead > 0)
                usleep(ahead * 1e6);
        }
    }
    return 0;
}
