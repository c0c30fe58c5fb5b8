/* Four workers touch 16 MiB each at the same moment, and end a second later. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noipa)) static void fill(char *block) {
    for (long at = 0; at < 16 << 20; at += 4096) block[at] = 1;
}

int main(void) {
    for (int n = 0; n < 4; n++) {
        if (!fork()) {
            fill(malloc(16 << 20));
            sleep(1);
            _exit(0);
        }
    }
    while (wait(0) > 0) {}
    return 0;
}
