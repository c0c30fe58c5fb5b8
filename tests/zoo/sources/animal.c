/* One animal of many natures: each word of its command line, NATURE or NATURE:ARGUMENT, gives it one. */
#define _GNU_SOURCE
#ifdef LATER
#include <dlfcn.h>
#endif
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#if defined __has_include && __has_include(<linux/filter.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#endif

#include "report.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
#ifndef TICK_BYTES
#define TICK_BYTES (16 * PAGE)
#endif
#ifdef TLS_BYTES
static __thread char thread_local_bytes[TLS_BYTES];
#endif

static char **own_argv;
static void (*between)(void); /* what a nature does once a tick */

static void fail(const char *what)
{
  perror(what);
  exit(3);
}

/* -- the heap ---------------------------------------------------------------------------------------------- */

static void **blocks;
static size_t n_blocks;

static void *known_block(size_t size)
{
  char *block = malloc(size);
  if (!block) fail("malloc");
  memset(block, 1, size);
  report->live_blocks++;
  report->live_bytes += malloc_usable_size(block) + sizeof(size_t);
  report->asked_bytes += size;
  return block;
}

static void free_known(void *block, size_t size)
{
  report->asked_bytes -= size;
  report->live_blocks--;
  report->live_bytes -= malloc_usable_size(block) + sizeof(size_t);
  free(block);
}

/* heap:COUNTxSIZE: every second block is freed again. */
static void have_heap(const char *words)
{
  size_t count = 0, size = 0;
  if (sscanf(words, "%zux%zu", &count, &size) != 2) exit(2);
  blocks = mmap(NULL, count * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (blocks == MAP_FAILED) fail("mmap");
  n_blocks = count;
  for (size_t i = 0; i < count; i++) blocks[i] = known_block(size);
  for (size_t i = 0; i + 1 < count; i += 2) {
    free_known(blocks[i], size);
    blocks[i] = NULL;
  }
}

/* scattered:COUNTxSIZE: every second one of small blocks is freed, in an order that no cache likes. */
static void have_scattered(const char *words)
{
  size_t count = 0, size = 0;
  if (sscanf(words, "%zux%zu", &count, &size) != 2) exit(2);
  blocks = mmap(NULL, count * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (blocks == MAP_FAILED) fail("mmap");
  for (size_t i = 0; i < count; i++) blocks[i] = known_block(size);
  size_t stride = 7368787 % count | 1; /* odd, so that it meets all where count is a power of two; else most */
  for (size_t i = 0, at = 0; i < count / 2; i++, at = (at + stride) % count)
    if (blocks[at]) {
      free_known(blocks[at], size);
      blocks[at] = NULL;
    }
}

static size_t *header(const void *block) { return (size_t *)block - 1; }

static char *heap_start(void)
{
  char line[512];
  unsigned long start = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "[heap]")) sscanf(line, "%lx", &start);
  if (maps) fclose(maps);
  return (char *)start;
}

static bool has_fastbins(void)
{
#ifdef __GLIBC__
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo2 is younger than the oldest glibc here */
  return mallinfo().smblks > 0; /* blocks in fastbins: glibc 2.43 has none */
#else
  return false;
#endif
}

/* Damage one word of malloc's bookkeeping; no malloc or free follows in this program. */
static void have_corrupt_heap(const char *how)
{
  static char *small[4000], *large[64];
  char *last;
  for (int i = 0; i < 4000; i++) small[i] = known_block(40);
  for (int i = 0; i < 64; i++) large[i] = known_block(5000);
  char *first = heap_start(); /* tcache's own block comes first, then what stdio has for the file just read */
  for (int i = 0; i < 4000; i += 2) free_known(small[i], 40);
  for (int i = 0; i < 64; i += 2) free_known(large[i], 5000);
  free_known(known_block(3000), 3000); /* from the tail of the first free one: the others are sorted into bins */
  last = known_block(60000);
  for (int i = 3001; i < 3007; i += 2) free_known(small[i], 40); /* into a fastbin: the tcache is full */
  size_t *live = header(small[2001]), *freed = header(large[32]), *fast = header(small[3003]), *top;
  top = (size_t *)((char *)header(last) + (*header(last) & ~7ul));
  uint16_t *counts = (uint16_t *)(first + 16);
  void **entries = (void **)(first + 16 + 64 * 2);
  if (!strcmp(how, "size-huge")) *live = 0x800001;
  else if (!strcmp(how, "size-zero")) *live = 1;
  else if (!strcmp(how, "size-11")) *live = 0x11;
  else if (!strcmp(how, "size-1a1")) *live = 0x1a1;
  else if (!strcmp(how, "size-271")) *live = 0x271;
  else if (!strcmp(how, "size-odd")) *live += 8;
  else if (!strcmp(how, "in-use-cleared")) *header(small[1]) &= ~1ul; /* the block before it lies in the tcache, which is in use */
  else if (!strcmp(how, "mmapped-flag")) *live |= 2;
  else if (!strcmp(how, "foreign-arena")) *live |= 4;
  else if (!strcmp(how, "use-after-free-fd")) {
    if (!has_fastbins()) errno = ENOSYS, fail("fastbins");
    memset(fast + 1, 'A', 8);
  }
  else if (!strcmp(how, "free-fd")) memset(freed + 1, 'A', 8);
  else if (!strcmp(how, "free-bk")) freed[2] = (size_t)live;
  else if (!strcmp(how, "free-size")) *freed += 0x100;
  else if (!strcmp(how, "free-footer")) *(size_t *)((char *)freed - 8 + (*freed & ~7ul)) = 0x40;
  else if (!strcmp(how, "overflow-64")) memset(small[2001] + 40, 'A', 64);
  else if (!strcmp(how, "overflow-null")) *((char *)header(large[33])) = 0;
  else if (!strcmp(how, "top-huge")) *top = ~0ul;
  else if (!strcmp(how, "top-zero")) *top = 0;
  else if (!strcmp(how, "tcache-count")) counts[1] = 70;
  else if (!strcmp(how, "tcache-loop")) *(uintptr_t *)entries[1] = ((uintptr_t)entries[1] >> 12) ^ (uintptr_t)entries[1];
  else exit(2);
}

/* -- signals ----------------------------------------------------------------------------------------------- */

static void count_signal(int number)
{
  report->signals++;
  report->last_signal = (uint64_t)number;
}

static void handle(int number)
{
  struct sigaction action = {.sa_handler = count_signal};
  sigaction(number, &action, NULL);
}

static void have_sigint(const char *how)
{
  if (!strcmp(how, "ignored")) signal(SIGINT, SIG_IGN);
  else if (!strcmp(how, "handled")) handle(SIGINT);
  else {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (!strcmp(how, "blocked-all")) sigfillset(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
  }
}

static void handle_everything(const char *none)
{
  (void)none;
  for (int number = 1; number < 32; number++)
    if (number != SIGKILL && number != SIGSTOP && number != SIGSEGV && number != SIGBUS && number != SIGTRAP)
      handle(number);
}

static void *wait_for_signals(void *set)
{
  int number;
  for (;;)
    if (sigwait(set, &number) == 0) count_signal(number);
  return NULL;
}

static sigset_t waited;

static void have_sigwait(const char *none)
{
  (void)none;
  pthread_t thread;
  sigemptyset(&waited);
  sigaddset(&waited, SIGINT);
  sigaddset(&waited, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &waited, NULL);
  if (pthread_create(&thread, NULL, wait_for_signals, &waited)) fail("pthread_create");
}

static int signals_file = -1;

static void read_signals(void)
{
  struct signalfd_siginfo info;
  while (read(signals_file, &info, sizeof info) == sizeof info) count_signal((int)info.ssi_signo);
}

static void have_signalfd(const char *none)
{
  (void)none;
  have_sigint("blocked");
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  signals_file = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  between = read_signals;
}

static void nothing(int number) { (void)number; }

static void have_timer(const char *none)
{
  (void)none;
  struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
  struct itimerval each = {{0, 3000}, {0, 3000}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &each, NULL);
}

/* -- threads ----------------------------------------------------------------------------------------------- */

static pthread_barrier_t all_here;

static void *rest_for_ever(void *here)
{
#ifdef TLS_BYTES
  thread_local_bytes[0] = 1;
#endif
  void *own = malloc(100);
  __atomic_fetch_add(&report->live_blocks, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&report->asked_bytes, 100, __ATOMIC_RELAXED);
  __atomic_fetch_add(&report->live_bytes, malloc_usable_size(own) + sizeof(size_t), __ATOMIC_RELAXED);
  if (here) pthread_barrier_wait(here);
  for (;;) pause();
  return own;
}

static void have_threads(const char *count)
{
  pthread_attr_t small;
  pthread_attr_init(&small);
#ifndef TLS_BYTES
  pthread_attr_setstacksize(&small, 128 << 10);
#endif
  pthread_barrier_init(&all_here, NULL, (unsigned)atoi(count) + 1);
  for (int i = 0; i < atoi(count); i++) {
    pthread_t thread;
    if (pthread_create(&thread, &small, rest_for_ever, &all_here)) fail("pthread_create");
  }
  pthread_barrier_wait(&all_here);
}

static void *compute(void *none)
{
  for (volatile uint64_t i = 0;; i++)
    if (i % 100000 == 0) usleep(2000);
  return none;
}

static void have_busy_threads(const char *count)
{
  for (int i = 0; i < atoi(count); i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, compute, NULL)) fail("pthread_create");
  }
}

static void *do_nothing(void *none) { return none; }

static void start_thread(void)
{
  pthread_t thread;
  if (pthread_create(&thread, NULL, do_nothing, NULL) == 0) pthread_join(thread, NULL);
}

static void have_thread_churn(const char *none)
{
  (void)none;
  between = start_thread;
}

/* -- children ---------------------------------------------------------------------------------------------- */

static void end_child(pid_t child)
{
  if (child > 0) waitpid(child, NULL, 0);
}

static void fork_once(void)
{
  pid_t child = fork();
  if (child == 0) _exit(0);
  end_child(child);
}

static void vfork_once(void)
{
  pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(127);
  }
  end_child(child);
}

static void have_children(const char *how) { between = *how == 'v' ? vfork_once : fork_once; }

static void have_zombie(const char *none)
{
  (void)none;
  pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
}

static void *become_itself(void *none)
{
  usleep(300000);
  execv("/proc/self/exe", own_argv);
  return none;
}

static void have_exec_in_thread(const char *none)
{
  (void)none;
  report->live_blocks = report->live_bytes = report->asked_bytes = 0; /* of the image before */
  pthread_t thread;
  if (pthread_create(&thread, NULL, become_itself, NULL)) fail("pthread_create");
}

/* The parent traces: the child, which goes on in main, is the animal. */
static void have_tracer(const char *none)
{
  (void)none;
  pid_t child = fork();
  if (child == 0) {
    while (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && report->order != 2) usleep(1000);
    report->order = 0;
    report->pid = (uint64_t)getpid();
    return;
  }
  if (ptrace(PTRACE_SEIZE, child, 0, 0)) fail("PTRACE_SEIZE");
  report->order = 2;
  int status;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
    ptrace(PTRACE_CONT, child, 0, status >> 16 ? 0 : WSTOPSIG(status));
  exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void *end_soon(void *milliseconds)
{
  usleep((useconds_t)(uintptr_t)milliseconds * 1000);
  exit(7);
  return NULL;
}

/* dies:MILLISECONDS: and takes a while to, for its memory is to be taken down. */
static void have_end(const char *milliseconds)
{
  char *much = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_t thread;
  if (much == MAP_FAILED) fail("mmap");
  memset(much, 1, 256 * MIB);
  if (pthread_create(&thread, NULL, end_soon, (void *)(uintptr_t)atoi(milliseconds))) fail("pthread_create");
}

static void *leave_the_others(void *none)
{
  for (;;) {
    report->ticks++;
    usleep(10000);
    if (report->order == 1) exit(7);
  }
  return none;
}

static void have_no_main_thread(const char *none)
{
  (void)none;
  pthread_t thread;
  if (pthread_create(&thread, NULL, leave_the_others, NULL)) fail("pthread_create");
  report->ready = 1;
  syscall(SYS_exit, 0);
}

/* -- memory ------------------------------------------------------------------------------------------------ */

static char *mapped(size_t bytes, int flags)
{
  char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (start == MAP_FAILED) fail("mmap");
  return start;
}

static void have_memory(const char *how)
{
  if (!strcmp(how, "lazily-freed")) madvise(memset(mapped(20 * MIB, MAP_PRIVATE | MAP_ANONYMOUS), 1, 20 * MIB), 20 * MIB, 8);
  else if (!strcmp(how, "huge")) {
    char *start = mapped(34 * MIB, MAP_PRIVATE | MAP_ANONYMOUS);
    madvise(start, 34 * MIB, 14);
    memset(start, 1, 34 * MIB);
  } else if (!strcmp(how, "shared")) memset(mapped(10 * MIB, MAP_SHARED | MAP_ANONYMOUS), 1, 10 * MIB);
  else if (!strcmp(how, "hugetlb")) memset(mapped(4 * MIB, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB), 1, 4 * MIB);
  else if (!strcmp(how, "memfd")) {
    int file = memfd_create("of the zoo", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 10 * MIB)) fail("memfd_create");
    char *start = mmap(NULL, 10 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (start == MAP_FAILED) fail("mmap");
    memset(start, 1, 5 * MIB);
  } else exit(2);
}

static void have_maps(const char *count)
{
  for (int i = 0; i < atoi(count); i++) {
    char *start = mapped(2 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS);
    *start = 1;
    mprotect(start + PAGE, PAGE, PROT_NONE);
  }
}

static void swap_out_heap(const char *none)
{
  (void)none;
  char *start = heap_start(), *end = sbrk(0);
  if (madvise(start, (size_t)(end - start) / 2 & ~(PAGE - 1), 21 /* MADV_PAGEOUT */)) fail("MADV_PAGEOUT");
}

/* -- rights ------------------------------------------------------------------------------------------------ */

#ifdef SECCOMP_RET_KILL_PROCESS
static const struct { const char *name; unsigned number; } calls[] = {
    {"clone", SYS_clone}, {"wait4", SYS_wait4}, {"mmap", SYS_mmap}, {"munmap", SYS_munmap},
#ifdef SYS_fork
    {"fork", SYS_fork},
#endif
};

static unsigned filter_action(const char *how)
{
  if (!strncmp(how, "kill", 4)) return SECCOMP_RET_KILL_PROCESS;
  if (!strncmp(how, "trap", 4)) return SECCOMP_RET_TRAP;
  return SECCOMP_RET_ERRNO | EPERM;
}

/* seccomp:ACTION:CALL, ACTION one of kill, trap, errno. */
static void have_seccomp(const char *words)
{
  const char *call = strchr(words, ':') + 1;
  unsigned number = 0;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (!strcmp(calls[i].name, call)) number = calls[i].number;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, filter_action(words)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {4, filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
}
#else /* musl's compiler knows none of the kernel's headers */
static void have_seccomp(const char *words)
{
  fail(words);
}
#endif

static void lose_rights(const char *how)
{
  struct rlimit limit = {64 * MIB, 64 * MIB};
  if (!strcmp(how, "undumpable")) prctl(PR_SET_DUMPABLE, 0);
  else if (!strcmp(how, "little-memory")) setrlimit(RLIMIT_AS, &limit);
  else if (!strcmp(how, "few-files")) {
    limit.rlim_cur = limit.rlim_max = 4;
    setrlimit(RLIMIT_NOFILE, &limit);
  } else if (setgid(65534) || setuid(65534)) fail("setuid");
}

/* -- later ------------------------------------------------------------------------------------------------- */

#ifdef LATER
/* What comes long after a debugger has gone meets the breakpoints that it left in ld.so, fork() and clone(). */
static void go_on_when_ordered(void)
{
  if (report->order != 5) return;
  void *library = dlopen("libm.so.6", RTLD_NOW);
  pthread_t thread;
  int status = -1;
  pid_t child = fork();
  if (child == 0) _exit(0);
  if (waitpid(child, &status, 0) != child || status) report->refused++;
  if (pthread_create(&thread, NULL, do_nothing, NULL) || pthread_join(thread, NULL)) report->refused++;
  if (!library || dlclose(library)) report->refused++;
  report->order = 0;
}

static void have_later(const char *none)
{
  (void)none;
  between = go_on_when_ordered;
}
#endif

/* -- its day ----------------------------------------------------------------------------------------------- */

static const struct { const char *name; void (*take)(const char *argument); } natures[] = {
    {"heap", have_heap}, {"scattered", have_scattered}, {"corrupt", have_corrupt_heap},
    {"sigint", have_sigint}, {"handlers", handle_everything}, {"sigwait", have_sigwait},
    {"signalfd", have_signalfd}, {"timer", have_timer}, {"threads", have_threads},
    {"busy", have_busy_threads}, {"churn", have_thread_churn}, {"children", have_children},
    {"zombie", have_zombie}, {"exec", have_exec_in_thread}, {"traced", have_tracer},
    {"dies", have_end}, {"no-main", have_no_main_thread}, {"memory", have_memory},
    {"maps", have_maps}, {"swapped", swap_out_heap}, {"seccomp", have_seccomp}, {"rights", lose_rights},
#ifdef LATER
    {"later", have_later},
#endif
};

static void take(char *word)
{
  char *colon = strchr(word, ':');
  size_t length = colon ? (size_t)(colon - word) : strlen(word);
  for (size_t i = 0; i < sizeof natures / sizeof *natures; i++)
    if (strlen(natures[i].name) == length && !strncmp(natures[i].name, word, length)) {
      natures[i].take(colon ? colon + 1 : "");
      return;
    }
  fprintf(stderr, "no such nature: %s\n", word);
  exit(2);
}

#ifdef TICK_STATIC /* for one that may map nothing */
__attribute__((noinline)) void tick(void)
{
  static char bytes[TICK_BYTES];
  memset(bytes, 1, TICK_BYTES);
}
#else
__attribute__((noinline)) void tick(void)
{
  char *pages = mmap(NULL, TICK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    report->refused++;
    return;
  }
  memset(pages, 1, TICK_BYTES);
  munmap(pages, TICK_BYTES);
}
#endif

int main(int argc, char **argv)
{
  own_argv = argv;
  open_report();
  setvbuf(stdout, NULL, _IONBF, 0);
  report->tick_bytes = TICK_BYTES;
  for (int i = 1; i < argc; i++) take(argv[i]);
  report->ready = 1;
  while (report->order != 1) {
    tick();
    if (between) between();
    end_turn();
  }
  return 7;
}
