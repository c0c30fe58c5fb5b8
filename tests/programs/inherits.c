/* inherits: a parent with 24 MiB of blocks forks a child that allocates and writes 2 MiB, and waits; 'pid' is the child's.
 * With an argument: as many MiB of the parent's are written by the child. Prints the parent's pid, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 24 << 10 };

int main(int count, char **words) {
    static char *blocks[BLOCKS];
    char line[8];
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* the kernel could copy shared pages into a huge one at any time */
    int written = count > 1 ? atoi(words[1]) << 10 : 0;
    for (int i = 0; i < BLOCKS; i++) memset(blocks[i] = malloc(1016), 1, 1016);
    int child = fork();
    if (child) return waitpid(child, NULL, 0) < 0;
    memset(malloc(2 << 20), 2, 2 << 20);
    for (int i = 0; i < written; i++) blocks[i][1] = 3;
    printf("pid %d\nparent %d\nready\n", (int)getpid(), (int)getppid());
    fflush(stdout);
    return read(0, line, sizeof line) < 0;
}
