/* Fills each kind of malloc's lists in two arenas, says what malloc_info and mallinfo2 say of them and where some of its
 * blocks are, and waits. */
// flags: -pthread -O0
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace shapes {
struct Circle {
    virtual ~Circle() {}
    double radius = 1;
    char *name = nullptr;
};
}  // namespace shapes

static pthread_barrier_t there;
static char buffer[1 << 16];
struct Table { long rows; char *text; };
Table the_table;
shapes::Circle *the_circle;

static void *block(size_t size) { return memset(malloc(size), 0x55, size); }

static void fill(int more) {
    void *small[40], *large[12], *fast[30], *sorted[9];
    for (int i = 0; i < 40; i++) small[i] = block(600 + 160 * (i % 3)), block(40);
    for (int i = 0; i < 12; i++) large[i] = block(2000 + 900 * i + more), block(40);
    for (int i = 0; i < 30; i++) fast[i] = block(24 + 16 * (i % 3));
    for (int i = 0; i < 9; i++) sorted[i] = block(1040), block(40);
    for (int i = 0; i < 40; i++) free(small[i]);
    for (int i = 0; i < 12; i++) free(large[i]);
    block(60000); /* sorts what was freed into bins */
    for (int i = 0; i < 9; i++) free(sorted[i]);
    for (int i = 0; i < 30; i++) free(fast[i]);
}

static void *other(void *) {
    block(100);
    fill(128);
    pthread_barrier_wait(&there);
    for (;;) pause();
}

int main() {
    pthread_t id;
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    pthread_barrier_init(&there, nullptr, 2);
    pthread_create(&id, nullptr, other, nullptr);
    pthread_barrier_wait(&there);
    the_circle = new shapes::Circle;
    the_circle->name = static_cast<char *>(block(200));
    the_table.text = static_cast<char *>(block(1000));
    strcpy(the_table.text, "\033[31mred");
    void *mapped = block(1 << 20);
    void *cached = block(400), *free_one = block(3000);
    block(40);
    fill(0);
    free(free_one);
    free(cached);
    printf("circle %p\nname %p\ntext %p\nmapped %p\ncached %p\nfree %p\n", (void *)the_circle,
           (void *)the_circle->name, (void *)the_table.text, mapped, cached, free_one);
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 all = mallinfo2();
#else
    struct mallinfo all = mallinfo();
#endif
    printf("mallinfo2 %zu %zu %zu %zu\n", (size_t)all.ordblks, (size_t)all.smblks, (size_t)all.fsmblks,
           (size_t)all.fordblks);
    malloc_info(0, stdout);
    printf("ready\n");
    fflush(stdout);
    (void)!read(0, buffer, 1);
}
