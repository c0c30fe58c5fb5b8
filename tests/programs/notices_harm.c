/* Looks for some milliseconds whether another process changes anything of this thread: check(KIND) returns 0, or what it
 * found, as the bytes of a word. A library that a Python program calls.
 */
// flags: -shared -fPIC
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MILLISECONDS = 5, LOOPS = 500 };

static uint64_t word(const char *text) {
    uint64_t value = 0;
    strncpy((char *)&value, text, sizeof value);
    return value;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

#ifdef __x86_64__
/* Gives each register a value of its own, and the bytes below the stack pointer, and compares them after a moment. */
int spins_alone(unsigned char (*vectors)[16][32]);
__asm__(
    ".text\n"
    "spins_alone:\n"
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "vmovups 0(%rdi), %ymm0\n"
    "vmovups 32(%rdi), %ymm1\n"
    "vmovups 64(%rdi), %ymm2\n"
    "vmovups 96(%rdi), %ymm3\n"
    "vmovups 128(%rdi), %ymm4\n"
    "vmovups 160(%rdi), %ymm5\n"
    "vmovups 192(%rdi), %ymm6\n"
    "vmovups 224(%rdi), %ymm7\n"
    "vmovups 256(%rdi), %ymm8\n"
    "vmovups 288(%rdi), %ymm9\n"
    "vmovups 320(%rdi), %ymm10\n"
    "vmovups 352(%rdi), %ymm11\n"
    "vmovups 384(%rdi), %ymm12\n"
    "vmovups 416(%rdi), %ymm13\n"
    "vmovups 448(%rdi), %ymm14\n"
    "vmovups 480(%rdi), %ymm15\n"
    "movabs $0x1122334455667788, %r12\n mov %r12, -8(%rsp)\n mov %r12, -128(%rsp)\n"
    "mov $17, %rax\n"
    "mov $18, %rbx\n"
    "mov $19, %rdx\n"
    "mov $20, %rsi\n"
    "mov $21, %rbp\n"
    "mov $22, %r8\n"
    "mov $23, %r9\n"
    "mov $24, %r10\n"
    "mov $25, %r11\n"
    "mov $26, %r13\n"
    "mov $27, %r14\n"
    "mov $28, %r15\n"
    "mov $20000, %rcx\n"
    "1: dec %rcx\n jnz 1b\n"
    "cmp %r12, -8(%rsp)\n jne 2f\n"
    "cmp %r12, -128(%rsp)\n jne 2f\n"
    "cmp $17, %rax\n jne 2f\n"
    "cmp $18, %rbx\n jne 2f\n"
    "cmp $19, %rdx\n jne 2f\n"
    "cmp $20, %rsi\n jne 2f\n"
    "cmp $21, %rbp\n jne 2f\n"
    "cmp $22, %r8\n jne 2f\n"
    "cmp $23, %r9\n jne 2f\n"
    "cmp $24, %r10\n jne 2f\n"
    "cmp $25, %r11\n jne 2f\n"
    "cmp $26, %r13\n jne 2f\n"
    "cmp $27, %r14\n jne 2f\n"
    "cmp $28, %r15\n jne 2f\n"
    "xor %eax, %eax\n jmp 3f\n"
    "2: mov $1, %eax\n"
    "3:\n"
    "vmovups %ymm0, 512(%rdi)\n"
    "vmovups %ymm1, 544(%rdi)\n"
    "vmovups %ymm2, 576(%rdi)\n"
    "vmovups %ymm3, 608(%rdi)\n"
    "vmovups %ymm4, 640(%rdi)\n"
    "vmovups %ymm5, 672(%rdi)\n"
    "vmovups %ymm6, 704(%rdi)\n"
    "vmovups %ymm7, 736(%rdi)\n"
    "vmovups %ymm8, 768(%rdi)\n"
    "vmovups %ymm9, 800(%rdi)\n"
    "vmovups %ymm10, 832(%rdi)\n"
    "vmovups %ymm11, 864(%rdi)\n"
    "vmovups %ymm12, 896(%rdi)\n"
    "vmovups %ymm13, 928(%rdi)\n"
    "vmovups %ymm14, 960(%rdi)\n"
    "vmovups %ymm15, 992(%rdi)\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n vzeroupper\n ret\n");

static uint64_t registers(void) {
    unsigned char vectors[2][16][32];
    unsigned number = 0;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 32; j++) vectors[0][i][j] = (unsigned char)(number++ * 7 + 1 + i);
    for (int loop = 0; loop < LOOPS; loop++) {
        if (spins_alone(vectors)) return word("register");
        if (memcmp(vectors[0], vectors[1], sizeof vectors[0])) return word("vector");
    }
    return 0;
}
#endif

static int timer(void) {
    struct itimerspec once = {{0, 0}, {0, MILLISECONDS * 1000000}};
    int descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    timerfd_settime(descriptor, 0, &once, NULL);
    return descriptor;
}

static uint64_t waits(const char *kind) {
    struct timespec span = {0, MILLISECONDS * 1000000};
    int64_t end = now() + MILLISECONDS * 1000000;
    int descriptor = -1, expected = 0, watcher = -1;
    long result = -1;
    uint64_t times;
    errno = 0;
    if (!strcmp(kind, "sleep")) {
        result = nanosleep(&span, NULL);
    } else if (!strcmp(kind, "poll")) {
        result = poll(NULL, 0, MILLISECONDS);
    } else if (!strcmp(kind, "futex")) {
        uint32_t value = 0;
        result = syscall(SYS_futex, &value, FUTEX_WAIT, 0, &span, NULL, 0) == -1 && errno == ETIMEDOUT ? 0 : -1;
    } else if (!strcmp(kind, "read")) {
        descriptor = timer(), expected = sizeof times;
        result = read(descriptor, &times, sizeof times);
    } else if (!strcmp(kind, "epoll")) {
        struct epoll_event event = {.events = EPOLLIN};
        descriptor = timer(), expected = 1;
        watcher = epoll_create1(EPOLL_CLOEXEC);
        epoll_ctl(watcher, EPOLL_CTL_ADD, descriptor, &event);
        result = epoll_wait(watcher, &event, 1, -1);
    }
    int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (watcher >= 0) close(watcher);
    if (result != expected) return word(error == EINTR ? "EINTR" : "result");
    return now() < end ? word("early") : 0;
}

uint64_t check(const char *kind) {
    sigset_t mask;
    stack_t stack;
    static char alternate[1 << 16];
    static int begun;
    if (!begun) {
        stack_t own = {.ss_sp = alternate, .ss_size = sizeof alternate};
        begun = 1;
        sigaltstack(&own, NULL);
    }
    uint64_t found = 0;
#ifdef __x86_64__
    if (!strcmp(kind, "registers")) found = registers();
#endif
    if (!found && strcmp(kind, "registers")) found = waits(kind);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 32; number++)
        if (sigismember(&mask, number) == 1) return word("masked");
    sigaltstack(NULL, &stack);
    if (stack.ss_sp != alternate || stack.ss_size != sizeof alternate) return word("altstack");
    return found;
}
