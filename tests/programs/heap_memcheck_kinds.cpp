// Has blocks of each kind that memcheck tells apart: reached by pointers to their beginning or to where its heuristics
// expect some, reached by pointers to their middle only, lost, and lost with an older pointer that nobody wrote over.
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>
#include <valgrind/memcheck.h>

// As sqlite3 allocates: the size stands before what is handed out.
struct Sized {
    Sized *next;
};
Sized *sized;

void add_sized(size_t size) {
    long *block = static_cast<long *>(malloc(8 + size));
    block[0] = static_cast<long>(size);
    Sized *made = reinterpret_cast<Sized *>(block + 1);
    made->next = sized;
    sized = made;
}

struct First {
    virtual ~First() {}
    long first = 1;
};
struct Second {
    virtual ~Second() {}
    char *mine = static_cast<char *>(malloc(77));
};
struct Both : First, Second {
    ~Both() override { free(mine); }
};
Second *both;    // leads to the second part of an object
Second *counted; // leads behind the number of elements
char *middle;
void **protected_words; // in memory that the program can only read
__thread void *of_thread;

__attribute__((noinline)) void leave_on_stack(int count) {
    void *volatile slots[256];
    for (int n = 0; n < 256; n++)
        slots[n] = n < count ? malloc(208) : nullptr;
    (void)slots[0];
}

static pthread_barrier_t barrier;

void *work(void *) {
    of_thread = malloc(512);
    void *volatile on_stack = malloc(1040);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    free(const_cast<void *>(on_stack));
    return nullptr;
}

char *pool;

void fill_pool(size_t last_shift) {
    pool = static_cast<char *>(malloc(4096));
    VALGRIND_CREATE_MEMPOOL(pool, 0, 0);
    VALGRIND_MAKE_MEM_NOACCESS(pool, 4096);
    void **before = nullptr;
    for (int n = 0; n < 10; n++) {
        void **chunk = reinterpret_cast<void **>(pool + 256 + 64 * n + (n == 9 ? last_shift : 0));
        VALGRIND_MEMPOOL_ALLOC(pool, chunk, 48);
        *chunk = before;
        before = chunk;
    }
}

void stop_here() {
    puts("stopped");
    fflush(stdout);
}

__attribute__((noinline)) void hold_and_stop() {
    void *volatile slots[256]; // not written: what another function has left there
    (void)slots;
    stop_here();
    slots[0] = nullptr;
}

int main(int count, char **words) {
    const int threads = count > 1 ? atoi(words[1]) : 0;
    for (int n = 0; n < 30; n++)
        add_sized(40 + 24 * n);
    both = new Both;
    counted = new Second[3];
    middle = static_cast<char *>(calloc(1, 640)) + 100;
    middle -= reinterpret_cast<long>(middle) % 8;
    protected_words = static_cast<void **>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    *protected_words = malloc(336);
    mprotect(protected_words, 4096, PROT_READ);
    if (count > 2)
        fill_pool(static_cast<size_t>(atoi(words[2])));
    pthread_t started[16];
    pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(threads + 1));
    for (int n = 0; n < threads; n++)
        pthread_create(&started[n], nullptr, work, nullptr);
    pthread_barrier_wait(&barrier);
    leave_on_stack(5);
    hold_and_stop();
    pthread_barrier_wait(&barrier);
    for (int n = 0; n < threads; n++)
        pthread_join(started[n], nullptr);
    return 0;
}
