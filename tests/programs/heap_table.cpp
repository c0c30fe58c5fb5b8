// A hash table with two elements in the bucket that comes first, so that its array leads to the variable instead of the
// first element. What malloc gets back is printed as by heap_owners.
//
// usage: heap_table [COUNT]
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <string>
#include <unistd.h>
#include <unordered_map>

static std::unordered_map<size_t, std::string> table;

int main(int argc, char **argv) {
    table.max_load_factor(100);
    table.rehash(argc > 1 ? atoi(argv[1]) : 2000);
    size_t buckets = table.bucket_count();
    for (size_t n = 0; n <= buckets; n++)
        table.emplace(n < buckets ? n : 2 * buckets - 1, std::string(40, 'e'));
    printf("ready\n");
    fflush(stdout);
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        struct mallinfo2 before = mallinfo2();
        std::unordered_map<size_t, std::string>().swap(table);
        struct mallinfo2 after = mallinfo2();
        printf("freed table %zu\ndone\n", before.uordblks + before.hblkhd - after.uordblks - after.hblkhd);
        fflush(stdout);
        _exit(0);
    }
}
