/* A program whose thread teams change size: teams OUTER INNER [ROUNDS].
 *
 * Each thread allocates a workspace of its own at its first use, as mathematical libraries do, and nobody
 * ever frees it. With a runtime that ends the surplus threads of a smaller team and starts new ones for the
 * next wide one, each round leaves the dead threads' workspaces behind.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKSPACE = 20 * 1024 };

static _Thread_local char *workspace;

static double work(int number) {
    if (!workspace) {
        workspace = malloc(WORKSPACE);
        memset(workspace, 1, WORKSPACE);
    }
    workspace[number % WORKSPACE]++;
    return workspace[(number * 7) % WORKSPACE];
}

int main(int argc, char **argv) {
    int outer = argc > 1 ? atoi(argv[1]) : 8;
    int inner = argc > 2 ? atoi(argv[2]) : 4;
    int rounds = argc > 3 ? atoi(argv[3]) : 2000;
    double sum = 0;
    for (int round = 0; round < rounds; round++) {
#pragma omp parallel num_threads(outer) reduction(+ : sum)
        sum += work(round);
#pragma omp parallel num_threads(inner) reduction(+ : sum)
        sum += work(round);
        usleep(1000);
    }
    printf("%g\n", sum);
    return 0;
}
