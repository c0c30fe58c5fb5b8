// Looks like a valgrind from outside: its name, and the memory that it shares with vgdb. argv: the folder to share it in,
// and what is to stand in that file's place when somebody looks. It says "ready", and waits.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char shared[4096], fifo[4096];

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    for (int way = 0; way < 2; way++) {
        snprintf(fifo, sizeof fifo, "%s/x-%s-%d-by-a-on-b", argv[1], way ? "from-vgdb-to" : "to-vgdb-from", getpid());
        if (mkfifo(fifo, 0666) != 0) return 3;
    }
    snprintf(shared, sizeof shared, "%s/x-shared-mem-vgdb-%d-by-a-on-b", argv[1], getpid());
    int file = open(shared, O_RDWR | O_CREAT, 0666);
    if (file < 0 || ftruncate(file, 48) != 0) return 4;
    if (mmap(NULL, 48, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED) return 5;
    if (unlink(shared) != 0 || symlink(argv[2], shared) != 0) return 6;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
