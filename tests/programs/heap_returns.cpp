// flags: -O1 -g -pthread
// Holders whose memory comes back to the kernel in different ways. By each name on the standard input the program frees
// what it holds and trims the heap, and prints how much less anonymous memory the kernel counts then.
#include <fcntl.h>
#include <malloc.h>
#include <map>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <unistd.h>
#include <vector>

typedef std::vector<char *> Holder;

static Holder churn, together, scattered, beside, mapped, threads, top, pins;
static std::map<int, std::string> entries;

static char *block(size_t size) { return (char *)memset(malloc(size), 1, size); }

static void fill(Holder &holder, int count, size_t size) {
    holder.reserve(count);
    for (int n = 0; n < count; n++)
        holder.push_back(block(size));
    pins.push_back(block(100));
}

static void *in_thread(void *) {
    fill(threads, 4000, 200);
    return nullptr;
}

static void drop(Holder &holder) {
    for (char *one : holder)
        free(one);
    Holder().swap(holder);
}

static long anonymous() {
    static char text[1 << 13];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = 0;
    return atol(strstr(text, "Anonymous:") + 10) << 10;
}

int main(int argc, char **argv) {
    static char buffers[2][BUFSIZ];
    setvbuf(stdin, buffers[0], _IOLBF, BUFSIZ);
    setvbuf(stdout, buffers[1], _IOLBF, BUFSIZ);
    pins.reserve(1000);

    fill(churn, 3000, 600);
    fill(together, 5000, 72);
    scattered.reserve(4000); // buffers that a vector grew out of would leave pointers in what is allocated there
    beside.reserve(4000);
    for (int n = 0; n < 4000; n++) {
        scattered.push_back(block(90));
        beside.push_back(block(90));
    }
    for (int n = 0; n < 3000; n++)
        entries[n * 7919 % 10007] = std::string(100, 'x');
    fill(mapped, 3, 300000);
    pthread_t thread;
    pthread_create(&thread, nullptr, in_thread, nullptr);
    pthread_join(thread, nullptr);
    fill(top, 2000, 500);
    free(pins.back()); // what fill() left behind it
    pins.pop_back();
    for (size_t n = 0; n < churn.size(); n += 2) { // holes, of which some have whole pages
        free(churn[n]);
        churn[n] = nullptr;
    }
    for (size_t n = 1000; n < 1100; n++) {
        free(churn[n]);
        churn[n] = nullptr;
    }
    if (argc > 1)
        malloc_trim(0);
    char line[100];
    anonymous();
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        long before = anonymous();
        std::string name(line, strlen(line) - 1);
        if (name == "together")
            drop(together);
        else if (name == "scattered")
            drop(scattered);
        else if (name == "mapped")
            drop(mapped);
        else if (name == "threads")
            drop(threads);
        else if (name == "top")
            drop(top);
        else if (name == "entries")
            entries.clear();
        else if (name == "churn")
            drop(churn);
        malloc_trim(0);
        printf("%s %ld\n", name.c_str(), before - anonymous());
    }
    return churn.size() + beside.size() == 0;
}
