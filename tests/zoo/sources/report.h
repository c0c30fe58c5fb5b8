/* The page on which an animal reports what happens to it: a file shared with its keeper, who gives orders on it, too. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct report {
  volatile uint64_t ready;       /* 1: all that the animal's nature asks for has been done */
  volatile uint64_t pid;         /* as the animal knows it: another one in a namespace */
  volatile uint64_t ticks;       /* it lives as long as this grows */
  volatile uint64_t signals;     /* delivered to it, but those it sends itself */
  volatile uint64_t last_signal;
  volatile uint64_t interrupted; /* system calls that returned EINTR */
  volatile uint64_t live_blocks; /* of malloc, that it has asked for and not freed */
  volatile uint64_t live_bytes;  /* the same with malloc's own words */
  volatile uint64_t blocked;     /* signals blocked and ignored when it began, a bit each */
  volatile uint64_t ignored;
  volatile uint64_t order;       /* written by the keeper: 1: end with status 7; 3: stay in wait_long(); 5: dlopen, fork, start a thread */
  volatile uint64_t refused;     /* system calls of its own that failed, and must not */
  volatile uint64_t tick_bytes;  /* what one line of tick() makes resident */
  volatile uint64_t asked_bytes; /* of malloc for the live blocks: what profilers count, without its words and rounding */
};

static struct report *report;
static uint64_t turns; /* of its day, after which it ends; 0: none is the last */

static uint64_t signal_bits(int (*is_member)(int number))
{
  uint64_t bits = 0;
  for (int number = 1; number < 32; number++)
    if (is_member(number) == 1) bits |= 1ull << (number - 1);
  return bits;
}

static int is_blocked(int number)
{
  sigset_t set;
  sigprocmask(SIG_SETMASK, NULL, &set);
  return sigismember(&set, number);
}

static int is_ignored(int number)
{
  struct sigaction action;
  return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void open_report(void)
{
  const char *path = getenv("ZOO_REPORT");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  void *page = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    fprintf(stderr, "no report: ZOO_REPORT has to name a file of 4 KiB\n");
    exit(2);
  }
  close(file);
  report = (struct report *)page;
  report->pid = (uint64_t)getpid();
  turns = getenv("ZOO_TURNS") ? strtoull(getenv("ZOO_TURNS"), NULL, 10) : 0;
  report->blocked = signal_bits(is_blocked);
  report->ignored = signal_bits(is_ignored);
}

/* What a breakpoint of the user's stands on: it must never be hit, and never be lost. */
__attribute__((noinline, used)) static void never_called(void) { __asm__ volatile(""); }

__attribute__((noinline, used)) static void rest(void)
{
  if (poll(NULL, 0, 10) < 0 && errno == EINTR) report->interrupted = report->interrupted + 1;
}

__attribute__((noinline, used)) static void sleep_as_ordered(void)
{
  while (report->order == 3) poll(NULL, 0, 50);
}

/* A line that ends only when the keeper says so. */
__attribute__((noinline, used)) static void wait_long(void)
{
  sleep_as_ordered();
  report->ticks = report->ticks + 1;
}

/* The end of one turn of an animal's day. */
static void end_turn(void)
{
  report->ticks = report->ticks + 1;
  if (report->order == 3) wait_long();
  if (turns && report->ticks >= turns) report->order = 1;
  rest();
}
