// Waits for another thread in a function that is inlined into the line that calls it, and does more after that.
#include <chrono>
#include <semaphore.h>
#include <thread>
// flags: -O0

static sem_t filled;
static volatile int taken;

static inline __attribute__((always_inline)) void take_one() {
    sem_wait(&filled);
    taken++;
    taken *= 2;
}

static inline __attribute__((always_inline)) void take() {
    take_one();
    taken++;
}

int main() {
    sem_init(&filled, 0, 0);
    std::thread other([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        sem_post(&filled);
    });
    taken = 1;
    take();
    taken = 2;
    other.join();
    return taken == 0;
}
