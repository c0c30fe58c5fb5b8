/* In one line two threads begin, fill 8 MiB each with a pause, and are waited for; the first thread fills 1 MiB itself. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN = 1 << 20, THEIRS = 8 << 20 };
static char *own, *theirs[2];

static void *fill(void *memory) {
    memset(memory, 1, THEIRS / 2);
    usleep(300000); /* the first thread waits meanwhile */
    return (char *)memset((char *)memory + THEIRS / 2, 1, THEIRS / 2);
}

static void work(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, fill, theirs[i]);
    memset(own, 1, OWN);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    own = aligned_alloc(4096, OWN);
    for (int i = 0; i < 2; i++) theirs[i] = aligned_alloc(4096, THEIRS);
    work(); /* HERE */
    return 0;
}
