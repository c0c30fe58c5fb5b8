// Grows in the way argv[1] by argv[2] bytes in each of 20 rounds, after each of which it calls mark().
// Blocks are allocated and freed beside that; one is never written. With "away-" before the way, it has its own
// namespaces of mounts, with a new /dev/shm, and of System V's objects.
#define _GNU_SOURCE
#include <alloca.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 20
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static char pool[64 << 20];
static char *kept[ROUNDS], *reserved, *moved;
static size_t used;

__attribute__((noinline)) void mark(int round) { __asm__ volatile("" ::"r"(round) : "memory"); }

static void *sleeper(void *unused) {
    char frame[8192];
    memset(frame, 1, sizeof frame);
    pause();
    return unused;
}

static void churn(void) {
    char *blocks[200];
    for (int i = 0; i < 200; i++) {
        blocks[i] = malloc(500 + i * 37);
        memset(blocks[i], 1, 500 + i * 37);
    }
    for (int i = 0; i < 200; i++)
        free(blocks[i]);
}

static char *map(size_t size, int flags) {
    return mmap(0, size, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static int queues[ROUNDS * 64], queued;

// A file of shared memory of this process, for the round.
static int shared_file(int round, int flags) {
    char name[64], *below = name + strlen("/dev/shm/gdbmem-grows-");
    snprintf(name, sizeof name, "/dev/shm/gdbmem-grows-%d", getpid());
    if (flags)
        mkdir(name, 0700);
    sprintf(strchr(below, 0), "/%d", round);
    if (flags)
        return open(name, flags, 0600);
    unlink(name);
    *strrchr(name, '/') = 0;
    return rmdir(name);
}

// Sends a descriptor, which nobody receives, and closes it.
static int send_file(int file) {
    static int ends[2];
    char byte = 0, control[CMSG_SPACE(sizeof file)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    if (!ends[1] && socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
        return -1;
    return sendmsg(ends[1], &message, 0) < 0 ? -1 : close(file);
}

// Fills a POSIX queue of 64 KiB without a name; the kernel allows a user 800 KiB in all.
static void fill_queue(int round) {
    char name[64];
    struct mq_attr attributes = {.mq_maxmsg = 8, .mq_msgsize = 8192};
    snprintf(name, sizeof name, "gdbmem-grows-%d-%d", getpid(), round);
    int queue = syscall(SYS_mq_open, name, O_CREAT | O_RDWR, 0600, &attributes);
    for (int i = 0; i < 8 && queue >= 0; i++)
        syscall(SYS_mq_timedsend, queue, pool, 8192, 0, 0);
    syscall(SYS_mq_unlink, name);
}

// A thread with a table of descriptors of its own writes a file in memory that only it has open.
static volatile int written;
static void *has_own_table(void *size) {
    if (unshare(CLONE_FILES))
        return 0;
    written = write(memfd_create("own", 0), pool, (size_t)size) == (ssize_t)(size_t)size;
    pause();
    return 0;
}

// A pipe holds a page for each of 16 bytes.
static int splice_pages(void) {
    int ends[2];
    struct iovec pieces[16];
    char *there = map(65536, ANONYMOUS);
    memset(there, 1, 65536);
    for (int i = 0; i < 16; i++)
        pieces[i] = (struct iovec){there + i * 4096, 1};
    if (pipe(ends) || vmsplice(ends[1], pieces, 16, 0) != 16)
        return 1;
    return munmap(there, 65536);
}

static void gives_up(int unused) { _exit(0); }

static int sets[ROUNDS];
static char stack_of_child[65536] __attribute__((aligned(16)));
static pid_t watcher;

static int maps(void *size) {
    memset(map((size_t)size, ANONYMOUS), 1, (size_t)size);
    return 0;
}

static int watches(void *unused) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        mark(-1);
        usleep(1000);
    }
}

// A process that is no thread, but has this one's memory.
static int share(int (*does)(void *), size_t size, int flags) {
    watcher = clone(does, stack_of_child + sizeof stack_of_child, CLONE_VM | flags, (void *)size);
    return watcher < 0;
}

static int grow(const char *way, size_t size, int round) {
    size_t pages = (size + 4095) & ~4095ul;
    if (!strcmp(way, "malloc"))
        memset(kept[round] = malloc(size), 1, size);
    else if (!strcmp(way, "mmap"))
        memset(map(size, ANONYMOUS), 1, size);
    else if (!strcmp(way, "sbrk"))
        memset(sbrk(size), 1, size);
    else if (!strcmp(way, "bss"))
        memset(pool + used, 1, size), used += size;
    else if (!strcmp(way, "reserve")) {
        mprotect(reserved + used, pages, PROT_READ | PROT_WRITE);
        memset(reserved + used, 1, size);
        used += pages;
    } else if (!strcmp(way, "shared"))
        memset(map(size, MAP_SHARED | MAP_ANONYMOUS), 1, size);
    else if (!strcmp(way, "memfd") || !strcmp(way, "unmapped")) {
        int file = memfd_create("pool", 0);
        if (ftruncate(file, size))
            return 1;
        char *there = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        memset(there, 1, size);
        if (way[0] == 'u')
            munmap(there, size);
        else
            close(file);
    } else if (!strcmp(way, "sysv") || !strcmp(way, "detached")) {
        int segment = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
        char *there = shmat(segment, 0, 0);
        memset(there, 1, size);
        if (way[0] == 'd')
            shmdt(there);
        kept[round] = (char *)(long)(segment + 1);
        if (way[0] == 's')
            shmctl(segment, IPC_RMID, 0);
    } else if (!strcmp(way, "file")) {
        int file = shared_file(round, O_CREAT | O_RDWR);
        if (write(file, pool, size) < (ssize_t)size)
            return 1;
        close(file);
    } else if (!strcmp(way, "pipes") || !strcmp(way, "sockets")) {
        int ends[2], written;
        for (size_t sent = 0; sent < size; sent += 32768) {
            if (way[0] == 'p' ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
                return 1;
            for (written = 0; written < 32768;)
                written += write(ends[1], pool, 32768 - written);
        }
    } else if (!strcmp(way, "messages")) {
        static struct { long kind; char text[8192]; } message = {1, ""};
        int queue = 0;
        for (size_t sent = 0; sent < size; sent += sizeof message.text) {
            if (sent % 16384 == 0)
                queue = queues[queued++] = msgget(IPC_PRIVATE, 0600);
            if (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT))
                return 1;
        }
    } else if (!strcmp(way, "registered")) {
        struct io_uring_params settings = {0};
        struct iovec area = {map(pages, ANONYMOUS), pages};
        int ring = syscall(SYS_io_uring_setup, 8, &settings);
        memset(area.iov_base, 1, pages);
        if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &area, 1))
            return 1;
        munmap(area.iov_base, pages);
    } else if (!strcmp(way, "aio")) {
        aio_context_t context = 0;
        if (syscall(SYS_io_setup, size / sizeof(struct io_event), &context))
            return 1;
    } else if (!strcmp(way, "in-flight")) {
        int file = memfd_create("sent", 0);
        if (write(file, pool, size) < (ssize_t)size || send_file(file))
            return 1;
    } else if (!strcmp(way, "packets")) {
        int ends[2];
        for (size_t sent = 0; sent < size; sent += 65536) {
            if (pipe2(ends, O_DIRECT | O_NONBLOCK))
                return 1;
            while (write(ends[1], pool, 1) == 1)
                ;
        }
    } else if (!strcmp(way, "spliced")) {
        for (size_t sent = 0; sent < size; sent += 65536)
            if (splice_pages())
                return 1;
    } else if (!strcmp(way, "ring")) {
        struct tpacket_req ring = {pages, 1, 2048, pages / 2048};
        int packets = socket(AF_PACKET, SOCK_RAW, 0);
        if (packets < 0 || setsockopt(packets, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring))
            return 1;
    } else if (!strcmp(way, "listen")) {
        if (socket(AF_PACKET, SOCK_RAW, 0) < 0)
            return 1;
    } else if (!strcmp(way, "semaphores")) {
        sets[round] = semget(IPC_PRIVATE, size / 64, 0600);
        if (sets[round] < 0)
            return 1;
    } else if (!strcmp(way, "empty-messages")) {
        int queue = queues[queued++] = msgget(IPC_PRIVATE, 0600);
        for (size_t sent = 0; sent < size; sent += 64)
            if (msgsnd(queue, &(long){1}, 0, IPC_NOWAIT))
                return 1;
    } else if (!strcmp(way, "own-table")) {
        pthread_t thread;
        written = 0;
        pthread_create(&thread, 0, has_own_table, (void *)size);
        while (!written)
            usleep(1000);
    } else if (!strcmp(way, "datagrams")) {
        static int ends[2];
        struct sockaddr_in there = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t length = sizeof there;
        if (!ends[1]) {
            ends[0] = socket(AF_INET, SOCK_DGRAM, 0);
            ends[1] = socket(AF_INET, SOCK_DGRAM, 0);
            setsockopt(ends[0], SOL_SOCKET, SO_RCVBUFFORCE, &(int){16 << 20}, sizeof(int));
            bind(ends[0], (struct sockaddr *)&there, length);
            getsockname(ends[0], (struct sockaddr *)&there, &length);
            connect(ends[1], (struct sockaddr *)&there, length);
        }
        for (size_t sent = 0; sent < size; sent += 32768)
            if (send(ends[1], pool, 32768, 0) < 0)
                return 1;
    } else if (!strcmp(way, "own-mount")) {
        char name[32];
        if (!round && (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) ||
                       mount("mine", "/mnt", "ramfs", 0, 0)))
            return 1;
        snprintf(name, sizeof name, "/mnt/%d", round);
        int file = open(name, O_CREAT | O_WRONLY, 0600);
        if (write(file, pool, size) < (ssize_t)size)
            return 1;
        close(file);
    } else if (!strcmp(way, "own-file")) {
        int file = open("/proc/self/exe", O_RDONLY);
        size_t part = size < 16384 ? size : 16384;  // it is not large
        for (size_t mapped = 0; mapped < size; mapped += part)
            memset(mmap(0, part, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0), 1, part);
        close(file);
    } else if (!strcmp(way, "shares") || !strcmp(way, "shares-silently")) {
        if (share(maps, size, way[6] ? 0 : SIGCHLD) || waitpid(watcher, 0, __WALL) < 0)
            return 1;
    } else if (!strcmp(way, "unshown")) {
        char *there = map(pages, MAP_SHARED | MAP_ANONYMOUS);
        memset(there, 1, pages);
        madvise(there, pages, MADV_DONTNEED);
    } else if (!strcmp(way, "posix"))
        fill_queue(round);
    else if (!strcmp(way, "code"))
        memset(mmap(0, size, PROT_READ | PROT_WRITE | PROT_EXEC, ANONYMOUS, -1, 0), 1, size);
    else if (!strcmp(way, "populate"))
        map(size, ANONYMOUS | MAP_POPULATE);
    else if (!strcmp(way, "mlock"))
        mlock(map(size, ANONYMOUS), size);
    else if (!strcmp(way, "populate-write"))
        madvise(map(pages, ANONYMOUS), pages, 23);  // MADV_POPULATE_WRITE
    else if (!strcmp(way, "mremap")) {
        moved = moved ? mremap(moved, used, used + pages, MREMAP_MAYMOVE) : map(pages, ANONYMOUS);
        memset(moved + used, 1, pages);
        used += pages;
    } else if (!strcmp(way, "data-file")) {
        char name[] = "/tmp/gdbmem-grows-XXXXXX";
        int file = mkstemp(name);
        unlink(name);
        if (ftruncate(file, size))
            return 1;
        memset(mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0), 1, size);
        close(file);
    } else if (!strcmp(way, "read")) {
        int file = open("/dev/zero", O_RDONLY);
        if (read(file, map(size, ANONYMOUS), size) < 0)
            return 1;
        close(file);
    } else if (!strcmp(way, "threads"))
        for (size_t made = 0; made < size; made += 16384) {
            pthread_t thread;
            pthread_create(&thread, 0, sleeper, 0);
        }
    return 0;
}

static char **command;

static int executed(void *unused) {
    execve(command[0], command, environ);
    return 127;
}

// A child runs `words` in the way `how`, and is waited for.
static void run(const char *how, char **words) {
    static char stack[65536] __attribute__((aligned(16)));
    int copy = -1;
    pid_t child = 0;
    command = words;
    if (!strcmp(how, "memory")) {
        static char name[40];
        int file = open(words[0], O_RDONLY);
        copy = memfd_create("copy", 0);
        while (sendfile(copy, file, 0, 1 << 20) > 0)
            ;
        close(file);
        snprintf(name, sizeof name, "/proc/self/fd/%d", copy);
        command[0] = name;
        child = fork();
    } else if (!strcmp(how, "spawn"))
        posix_spawn(&child, words[0], 0, 0, words, environ);
    else if (!strcmp(how, "fork"))
        child = fork();
    else if (!strcmp(how, "clone"))
        child = clone(executed, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
    else if (!strcmp(how, "twice")) {
        child = fork();
        if (child == 0) {
            posix_spawn(&child, words[0], 0, 0, words, environ);
            waitpid(child, 0, 0);
            execl("/bin/true", "true", (char *)0);
        }
    } else {
        char line[5000];
        snprintf(line, sizeof line, "'%s' %s %s", words[0], words[1], words[2]);
        if (!strcmp(how, "popen"))
            pclose(popen(line, "w"));
        else if (system(line))
            exit(4);
        return;
    }
    if (child == 0)
        _exit(executed(0));
    waitpid(child, 0, 0);
    close(copy);
}

int main(int count, char **words) {
    const char *way = count > 1 ? words[1] : "none";
    size_t size = count > 2 ? strtoul(words[2], 0, 10) : 0;
    if (!strncmp(way, "away-", 5)) {
        way += 5;
        if (unshare(CLONE_NEWNS | CLONE_NEWIPC) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) ||
            mount("shm", "/dev/shm", "tmpfs", 0, 0))
            return 3;
    }
    char *unwritten = malloc(8 << 20);
    reserved = mmap(0, 1 << 28, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int round = 0; round < ROUNDS; round++) {
        if (strcmp(way, "fork-ends"))  // whose child had what the program had before, too
            churn();
        if (!strcmp(way, "fork") && round == 5) {
            if (fork() == 0) {
                for (int i = 0; i < ROUNDS; i++)
                    memset(malloc(size), 1, size);
                _exit(0);
            }
            wait(0);
        } else if ((!strcmp(way, "fork-maps") || !strcmp(way, "fork-ends")) && round == 5) {
            if (fork() == 0) {
                if (way[5] == 'm')
                    memset(mmap(0, ROUNDS * size, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0), 1, ROUNDS * size);
                _exit(0);
            }
            wait(0);
        } else if (!strcmp(way, "fork-killed") && round == 5) {
            int ends[2];
            if (pipe(ends))
                return 2;
            pid_t child = fork();
            if (child == 0) {
                for (int i = 0; i < ROUNDS; i++)
                    memset(malloc(size), 1, size);
                close(ends[1]);
                pause();
            }
            close(ends[1]);
            if (read(ends[0], pool, 1))
                return 2;
            kill(child, SIGKILL);
            wait(0);
        } else if (!strcmp(way, "left") && round == 5) {
            if (fork() == 0) {
                for (int i = 0; i < ROUNDS; i++)
                    memset(malloc(size), 1, size);
                prctl(PR_SET_PDEATHSIG, SIGKILL);  // works until the program has ended
                pause();
            }
        } else if (!strcmp(way, "watched") && round == 1) {
            if (share(watches, 0, SIGCHLD))
                return 2;
        } else if (!strncmp(way, "self-", 5) && round == 5)
            run(way + 5, (char *[]){words[0], "malloc", words[2], 0});
        else if (!strncmp(way, "help-", 5))
            run(way + 5, (char *[]){"/bin/true", "malloc", words[2], 0});
        else if (!strcmp(way, "exec") && round == 5)
            execl(words[0], words[0], "malloc", words[2], (char *)0);
        else if (!strcmp(way, "exec-through") && round == 5)
            execlp("env", "env", words[0], "malloc", words[2], (char *)0);
        else if (!strncmp(way, "end-", 4)) {
            memset(kept[round] = malloc(size), 1, size);
            mark(round);
            if (round == 2 && !strcmp(way, "end-exit"))
                exit(3);
            if (round == 2 && !strcmp(way, "end-handled")) {
                signal(SIGSEGV, gives_up);
                raise(SIGSEGV);
            }
            if (round == 2)
                raise(!strcmp(way, "end-kill") ? SIGKILL : !strcmp(way, "end-segv") ? SIGSEGV : SIGABRT);
            continue;
        } else if (!strcmp(way, "once")) {
            if (round == 0)
                mark(round);
            memset(kept[round] = malloc(size), 1, size);
            continue;
        } else if (!strcmp(way, "alloca"))
            memset(alloca(size), 1, size);
        else if (grow(way, size, round))
            return 2;
        mark(round);
    }
    if (!strcmp(way, "watched") && waitpid(watcher, 0, WNOHANG))
        return 5;  // it has ended
    if (!strcmp(way, "detached"))
        for (int round = 0; round < ROUNDS; round++)
            shmctl((int)(long)kept[round] - 1, IPC_RMID, 0);
    for (int round = 0; round < ROUNDS && !strcmp(way, "file"); round++)
        shared_file(round, 0);
    for (int round = 0; round < ROUNDS && !strcmp(way, "semaphores"); round++)
        semctl(sets[round], 0, IPC_RMID);
    while (queued)
        msgctl(queues[--queued], IPC_RMID, 0);
    free(unwritten);
    return 0;
}
