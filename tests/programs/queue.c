// A producer and a consumer. With only the consumer allowed to run, gdb's own `next` over take() never ends.
// The producer touches one page of its own for each item, the consumer two pages of another area.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define ITEMS 100000L
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, taken = PTHREAD_COND_INITIALIZER;
static int full;
static char *theirs, *ours;

static char *area(long pages) {
    char *start = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(start, pages * 4096, MADV_NOHUGEPAGE);
    return start;
}

static void *produce(void *unused) {
    for (long item = 0; item < ITEMS; item++) {
        pthread_mutex_lock(&lock);
        while (full) pthread_cond_wait(&taken, &lock);
        theirs[item * 4096] = 1;
        full = 1;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void take(void) {
    pthread_mutex_lock(&lock);
    while (!full) pthread_cond_wait(&filled, &lock);
    full = 0;
    pthread_cond_signal(&taken);
    pthread_mutex_unlock(&lock);
}

static void consume(void) {
    for (long item = 0; item < ITEMS; item++) {
        take();
        ours[item * 8192] = ours[item * 8192 + 4096] = 1;
    }
}

int main(void) {
    pthread_t producer;
    theirs = area(ITEMS);
    ours = area(2 * ITEMS);
    pthread_create(&producer, 0, produce, 0);
    consume();
    return 0;
}
