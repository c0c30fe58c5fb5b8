/* Holds 60,000 blocks (or -DBLOCKS) of 200 bytes, in a state that makes it hard to look at, and answers each line on its input.
 *   guarded seccomp ACTION NUMBER...  a filter that answers these system calls by kill, trap or errno
 *   guarded namespace                 the blocks are in a child in a PID namespace of its own
 *   guarded children-elsewhere        children would be in a PID namespace of their own
 *   guarded watched                   a userfaultfd watches memory, and nobody answers
 *   guarded swapped                   half of the heap is paged out
 *   guarded all-swapped               all writable memory is, but for the stack
 *   guarded reads FILE                a thread reads FILE by direct I/O, which it doesn't wait for
 * An answer is "alive N", where N is 1 if it could fork and had no child but that one, and read what is in the file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef BLOCKS
#define BLOCKS 60000
#endif
enum { SIZE = 200, WATCHED = 1 << 20 };
static char *blocks[2 * BLOCKS];
static char *volatile in_page_of_file = "none"; /* by its first value it is in the file, before what begins with zeros */
static char **volatile in_mapping;
static int may_fork = 1;

static void impossible(const char *what) {
    printf("impossible %s: %s\nready\n", what, strerror(errno));
    fflush(stdout);
    pause();
}

static void filter(int count, char **words) {
    unsigned answer = !strcmp(words[0], "kill")   ? SECCOMP_RET_KILL_PROCESS
                      : !strcmp(words[0], "trap") ? SECCOMP_RET_TRAP
                                                  : SECCOMP_RET_ERRNO | EPERM;
    struct sock_filter code[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int length = 1;
    for (int i = 1; i < count; i++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(words[i]), 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog whole = {length, code};
    may_fork = 0;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole)) impossible("seccomp");
}

static void watch(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* UFFD_USER_MODE_ONLY */);
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK};
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) { /* only root may have that feature */
        api = (struct uffdio_api){.api = UFFD_API};
        if (ioctl(fd, UFFDIO_API, &api)) impossible("userfaultfd");
    }
    if (fd < 0) impossible("userfaultfd");
    char *area = mmap(NULL, WATCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register all = {{(unsigned long)area, WATCHED}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(fd, UFFDIO_REGISTER, &all)) impossible("userfaultfd");
    may_fork = 0;
}

static void page_out(void) {
    char *start = (char *)(((unsigned long)blocks[0] + 4095) & -4096);
    for (int i = 0; i < 20; i++) { /* what is being written goes the next time */
        if (madvise(start, BLOCKS * SIZE, MADV_PAGEOUT)) impossible("paging out");
        usleep(20000);
    }
}

/* Pages out all that has been written to, first what variables and a mapping without a file alone lead to. */
static void page_out_all(void) {
    char line[512], access[8];
    unsigned long begin, end;
    in_page_of_file = malloc(3000);
    in_mapping = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    in_mapping[0] = malloc(5000);
    for (int i = 0; i < 20; i++, usleep(20000)) {
        FILE *maps = fopen("/proc/self/maps", "r");
        if (!maps) impossible("paging out");
        while (fgets(line, sizeof line, maps))
            if (sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && !strcmp(access, "rw-p") &&
                !strstr(line, "[stack]"))
                madvise((void *)begin, end - begin, MADV_PAGEOUT);
        fclose(maps);
    }
}

enum { REQUESTS = 32, PAGES = 64, PAGE = 4096, HALF = PAGE / 2 };
static volatile long rounds, lost;

/* Reads into the first half of each page, and writes to the other half meanwhile. */
static void *read_on(void *name) {
    static struct iovec parts[REQUESTS][PAGES];
    static struct iocb all[REQUESTS];
    struct iocb *each[REQUESTS];
    struct io_event done[REQUESTS];
    aio_context_t context = 0;
    int fd = open(name, O_RDONLY | O_DIRECT);
    char *memory = mmap(NULL, REQUESTS * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || syscall(SYS_io_setup, REQUESTS, &context)) impossible("direct I/O");
    for (int i = 0; i < REQUESTS; i++) {
        for (int n = 0; n < PAGES; n++) parts[i][n] = (struct iovec){memory + (i * PAGES + n) * PAGE, HALF};
        all[i] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREADV, .aio_fildes = fd, .aio_buf = (unsigned long)parts[i], .aio_nbytes = PAGES, .aio_offset = (long)i * PAGES * HALF};
        each[i] = &all[i];
    }
    for (;; rounds++) {
        memset(memory, 0, REQUESTS * PAGES * PAGE);
        if (syscall(SYS_io_submit, context, REQUESTS, each) != REQUESTS) impossible("direct I/O");
        for (int came = 0, count; came < REQUESTS; came += count) {
            struct timespec moment = {0, 200000};
            for (int n = 0; n < REQUESTS * PAGES; n++) memory[n * PAGE + HALF]++;
            count = syscall(SYS_io_getevents, context, 0, REQUESTS - came, done, &moment);
        }
        for (int n = 0; n < REQUESTS * PAGES; n++) lost += memory[n * PAGE] != 'r' || memory[n * PAGE + HALF - 1] != 'r';
    }
    return NULL;
}

static void read_directly(const char *name) {
    static char half[HALF];
    pthread_t thread;
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    memset(half, 'r', sizeof half);
    for (int n = 0; n < REQUESTS * PAGES; n++)
        if (write(fd, half, sizeof half) != sizeof half) impossible("a file");
    fsync(fd);
    close(fd);
    may_fork = 0; /* a fork of its own would prove nothing */
    pthread_create(&thread, NULL, read_on, (void *)name);
    while (!rounds) usleep(1000);
}

static int forks(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(0);
    return child > 0 && waitpid(-1, &status, __WALL) == child && waitpid(-1, &status, __WALL) < 0;
}

static void serve(void) {
    char line[16];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("alive %d\n", may_fork ? forks() : !lost);
        fflush(stdout);
    }
}

static char input[64], output[4096];

int main(int argc, char **argv) {
    /* A filter may refuse memory: nothing is allocated behind it. */
    setvbuf(stdin, input, _IOFBF, sizeof input);
    setvbuf(stdout, output, _IOFBF, sizeof output);
    for (int i = 0; i < 2 * BLOCKS; i++) {
        blocks[i] = malloc(SIZE);
        memset(blocks[i], 1, SIZE);
    }
    for (int i = 0; i < 2 * BLOCKS; i += 2) free(blocks[i]);
    if (!strcmp(argv[1], "seccomp")) filter(argc - 2, argv + 2);
    if (!strcmp(argv[1], "watched")) watch();
    if (!strcmp(argv[1], "swapped")) page_out();
    if (!strcmp(argv[1], "all-swapped")) page_out_all();
    if (!strcmp(argv[1], "reads")) read_directly(argv[2]);
    if (!strcmp(argv[1], "children-elsewhere") && unshare(CLONE_NEWPID)) impossible("a namespace");
    if (!strcmp(argv[1], "children-elsewhere")) may_fork = 0;
    if (!strcmp(argv[1], "namespace")) {
        if (unshare(CLONE_NEWPID)) impossible("a namespace");
        pid_t child = fork();
        if (child) {
            printf("pid %d\n", child);
            fflush(stdout);
            close(0);
            waitpid(child, NULL, 0);
            return 0;
        }
        prctl(PR_SET_PDEATHSIG, 9);
        usleep(100000); /* the parent's line first */
    }
    serve();
    return 0;
}
