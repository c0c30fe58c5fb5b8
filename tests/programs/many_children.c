/* many_children COUNT: forks COUNT children, one after the other, that end at once. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    for (int left = argc > 1 ? atoi(argv[1]) : 1000; left > 0; left--) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    return 0;
}
