/* Makes memory resident in one of many ways, between two lines of input, and says how much that was by its own statm. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)

static char *pool;
static size_t size = 64 * MIB;

static long resident_pages(void) {
    char text[128] = "";
    int file = open("/proc/self/statm", O_RDONLY);
    if (read(file, text, sizeof text - 1) < 0) abort();
    close(file);
    long all, resident;
    sscanf(text, "%ld %ld", &all, &resident);
    return resident;
}

__attribute__((noinline)) char *reserve(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

__attribute__((noinline)) void touch(char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) from[at] = 1; /* touched here */
}

static void *toucher(void *part) {
    touch(part, size / 4);
    return NULL;
}

static void lazily(void) { touch(pool, size); }

static void huge(void) {
    char *start = (char *)(((unsigned long)pool + 2 * MIB - 1) & ~(2 * MIB - 1));
    madvise(start, size, MADV_HUGEPAGE);
    touch(start, size);
}

static void in_folios(void) { /* no huge page fits into a MiB */
    for (size_t at = 0; at < size; at += 2 * MIB) madvise(pool + at, MIB, MADV_HUGEPAGE);
    for (size_t at = 0; at < size; at += 2 * MIB) touch(pool + at, MIB);
}

static void by_read(void) {
    int zero = open("/dev/zero", O_RDONLY);
    for (size_t at = 0; at < size;) at += read(zero, pool + at, 64 << 10); /* in kernel mode */
    close(zero);
}

static void and_back(void) {
    touch(pool, size);
    madvise(pool, size * 3 / 4, MADV_DONTNEED);
}

static void again_and_again(void) {
    for (int round = 0; round < 8; round++) {
        touch(pool, size);
        if (round < 7) madvise(pool, size, MADV_DONTNEED);
    }
}

static void in_shared_memory(void) {
    int file = memfd_create("pool", 0);
    if (ftruncate(file, size)) abort();
    touch(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), size);
}

static void of_a_file(void) {
    char name[] = "/tmp/gm-pages-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    for (size_t at = 0; at < size; at += MIB)
        if (write(file, pool, MIB) < 0) abort();
    volatile char *there = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    for (size_t at = 0; at < size; at += 4096) (void)there[at];
}

static void in_threads(void) {
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, toucher, pool + n * (size / 4));
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
}

static void fill_blocks(void) {
    for (size_t n = 0; n < size / 100000; n++) memset(malloc(100000), 1, 100000);
}

static void fill_and_free(void) { /* of four blocks each keeps one, so that no page is free */
    size_t count = size / 208;
    char **blocks = malloc(count * sizeof *blocks);
    for (size_t n = 0; n < count; n++) memset(blocks[n] = malloc(200), 1, 200);
    for (size_t n = 0; n < count; n++)
        if (n % 4) free(blocks[n]);
}

static void in_children(void) {
    int done[2];
    char one;
    if (pipe(done)) abort();
    for (int n = 0; n < 3; n++)
        if (!fork()) {
            touch(pool, size / 4);
            if (write(done[1], "x", 1) == 1) sleep(60);
            _exit(0);
        }
    for (int n = 0; n < 3; n++)
        if (read(done[0], &one, 1) != 1) abort();
    usleep(200000); /* in which the recorder hears of them */
}

static void many_children(void) {
    for (int n = 0; n < 1000; n++) {
        if (!fork()) {
            touch(pool, 16 * 4096);
            _exit(0);
        }
        wait(NULL);
    }
}

static void *short_life(void *part) {
    touch(part, 32 * 4096);
    return NULL;
}

static void many_threads(void) {
    for (int n = 0; n < 500; n += 10) {
        pthread_t threads[10];
        for (int k = 0; k < 10; k++) pthread_create(&threads[k], NULL, short_life, pool + (n + k) * 32 * 4096);
        for (int k = 0; k < 10; k++) pthread_join(threads[k], NULL);
    }
}

static void and_exec(void) {
    touch(pool, size);
    char *const words[] = {"sleep", "60", NULL};
    execvp(words[0], words);
}

static void and_ends(void) {
    touch(pool, size);
    usleep(500000);
    _exit(0);
}

static void only_read(void) {
    for (size_t at = 0; at < size; at += 4096) (void)*(volatile char *)(pool + at); /* the page of zeros */
}

static void populated(void) { mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0); }

static void locked(void) { mlock(pool, size); }

static void moved(void) {
    touch(pool, size);
    void *place = reserve(size);
    mremap(pool, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
}

static const struct {
    const char *name;
    void (*act)(void);
} KINDS[] = {
    {"lazily", lazily}, {"huge", huge}, {"folios", in_folios}, {"read", by_read}, {"back", and_back}, {"again", again_and_again},
    {"shared", in_shared_memory}, {"file", of_a_file}, {"threads", in_threads}, {"malloc", fill_blocks}, {"holes", fill_and_free},
    {"children", in_children}, {"many-children", many_children}, {"many-threads", many_threads},
    {"exec", and_exec}, {"ends", and_ends}, {"only-read", only_read}, {"populated", populated}, {"locked", locked},
    {"moved", moved},
};

int main(int count, char **words) {
    char line[16];
    if (count > 2) size = atol(words[2]) * MIB;
    pool = reserve(size + 2 * MIB);
    setvbuf(stdout, NULL, _IONBF, 0);
    long before = resident_pages();
    puts("ready");
    if (count > 3 || fgets(line, sizeof line, stdin)) {
        for (unsigned n = 0; n < sizeof KINDS / sizeof *KINDS; n++)
            if (!strcmp(KINDS[n].name, words[1])) KINDS[n].act();
    }
    printf("grew %ld\n", (resident_pages() - before) * 4096);
    if (count <= 3 && !fgets(line, sizeof line, stdin)) return 1;
    return 0;
}
