// A consumer that waits for its producer at every second line: nothing is made before it has been asked for.
// The producer touches one page of its own for each item, the consumer two pages of another area.
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#define ITEMS 100000L
static sem_t wanted, made;
static char *theirs, *ours;

static char *area(long pages) {
    char *start = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(start, pages * 4096, MADV_NOHUGEPAGE);
    return start;
}

static void *produce(void *unused) {
    for (long item = 0; item < ITEMS; item++) {
        sem_wait(&wanted);
        theirs[item * 4096] = 1;
        sem_post(&made);
    }
    return unused;
}

static void take(void) {
    sem_post(&wanted);
    sem_wait(&made);
}

static void consume(void) {
    long item = 0;
    do {
        take();
        ours[item * 8192] = ours[item * 8192 + 4096] = 1; if (++item == ITEMS) break;
    } while (1);
}

int main(void) {
    pthread_t producer;
    theirs = area(ITEMS);
    ours = area(2 * ITEMS);
    sem_init(&wanted, 0, 0);
    sem_init(&made, 0, 0);
    pthread_create(&producer, 0, produce, 0);
    consume();
    return 0;
}
