/* Loads the library in argv[1], has it keep 100 blocks of 1000 bytes, and unloads it; three times. */
#include <dlfcn.h>

__attribute__((noinline)) static void unloaded(int turn) { __asm__ volatile("" ::"r"(turn)); }

int main(int count, char **arguments) {
    for (int turn = 0; turn < 3 && count > 1; turn++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        void (*keep)(int) = library ? (void (*)(int))dlsym(library, "plugin_keep") : 0;
        if (!keep) return 1;
        keep(100);
        dlclose(library);
        unloaded(turn);
    }
    return 0;
}
