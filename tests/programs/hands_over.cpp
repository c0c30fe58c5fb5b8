// A main thread that hands work to other threads and waits for them, in one of many ways (-DWAY_…). All count the pages
// that they touch. The first line of each round is marked START.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
constexpr int ROUNDS = 4, PAGE = 4096;
struct Area {
    char *base; std::atomic<long> pages{0};
    explicit Area(long bytes) : base((char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) { madvise(base, bytes, MADV_NOHUGEPAGE); }
    void touch(int count) { for (int i = 0; i < count; i++) base[(pages + i) * PAGE] = 1; pages += count; }
};
static Area mine(64 << 20), theirs(64 << 20);
static volatile long in_round;
template <class T> class Queue {
  public:
    void push(T value) { { std::lock_guard<std::mutex> held(mutex_); items_.push_back(value); } some_.notify_one(); }
    T pop() { std::unique_lock<std::mutex> held(mutex_); some_.wait(held, [this] { return !items_.empty(); }); T value = items_.front(); items_.pop_front(); return value; }
  private:
    std::mutex mutex_; std::condition_variable some_; std::deque<T> items_;
};

#if defined(WAY_condvar)
static Queue<int> asked, answered;
static void work() { for (;;) { int n = asked.pop(); if (n < 0) return; theirs.touch(n); answered.push(n); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        asked.push(3);
        int got = answered.pop();
        mine.touch(got);
        mine.touch(1 + round);
    }
    asked.push(-1); other.join();
}
#elif defined(WAY_producers)
static Queue<int> made, wanted[3];
static void make(int who) { for (;;) { int n = wanted[who].pop(); if (n < 0) return; for (int i = 0; i < n; i++) { theirs.touch(1); made.push(1); } } }
int main()
{
    std::vector<std::thread> all; for (int i = 0; i < 3; i++) all.emplace_back(make, i);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        for (auto &one : wanted) one.push(4);
        int sum = 0;
        for (int i = 0; i < 12; i++) sum += made.pop();
        mine.touch(sum / 6);
        mine.touch(1 + round);
    }
    for (auto &one : wanted) one.push(-1); for (auto &one : all) one.join();
}
#elif defined(WAY_semaphores)
class Sem { public: Sem() { sem_init(&s_, 0, 0); } void post() { sem_post(&s_); } void wait() { while (sem_wait(&s_)) {} } private: sem_t s_; };
static Sem go, done; static std::atomic<bool> over;
static void work() { for (;;) { go.wait(); if (over) return; theirs.touch(2); done.post(); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        go.post();
        done.wait();
        mine.touch(2);
        mine.touch(1 + round);
    }
    over = true; go.post(); other.join();
}
#elif defined(WAY_futexes)
class Word { public: void set(int v) { w_ = v; syscall(SYS_futex, &w_, FUTEX_WAKE, 1, nullptr, nullptr, 0); }
  void until(int v) { int now; while ((now = w_) != v) syscall(SYS_futex, &w_, FUTEX_WAIT, now, nullptr, nullptr, 0); } private: std::atomic<int> w_{0}; };
static Word word;
static void work() { for (int r = 0; r < ROUNDS; r++) { word.until(2 * r + 1); usleep(200000); theirs.touch(5); word.set(2 * r + 2); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        word.set(2 * round + 1);
        word.until(2 * round + 2);
        mine.touch(4);
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_pipes)
class Pipe { public: Pipe() { if (pipe(f_)) abort(); } void put(char c) { if (write(f_[1], &c, 1) != 1) abort(); } char get() { char c; while (read(f_[0], &c, 1) != 1) {} return c; } private: int f_[2]; };
static Pipe out, back;
static void work() { for (char c; (c = out.get()) != 'q';) { theirs.touch(c - '0'); back.put(c); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        out.put('4');
        char c = back.get();
        mine.touch(c - '1');
        mine.touch(1 + round);
    }
    out.put('q'); other.join();
}
#elif defined(WAY_spin)
static std::atomic<int> turn{0};
static inline void until(int v) { while (turn.load(std::memory_order_acquire) != v) {} }
static void work() { for (int r = 0; r < ROUNDS; r++) { until(2 * r + 1); theirs.touch(3); turn = 2 * r + 2; } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        turn = 2 * round + 1;
        until(2 * round + 2);
        mine.touch(3);
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_spin_yield)
struct Turn { std::atomic<int> n{0}; void pass(int v) { n = v; } void await(int v) { while (n != v) std::this_thread::yield(); } };
static Turn turn;
static void work() { for (int r = 0; r < ROUNDS; r++) { turn.await(2 * r + 1); theirs.touch(3); turn.pass(2 * r + 2); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        turn.pass(2 * round + 1); turn.await(2 * round + 2);
        mine.touch(5);
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_barriers)
static pthread_barrier_t barrier;
static inline void meet() { pthread_barrier_wait(&barrier); }
static void work() { for (int r = 0; r < ROUNDS; r++) { meet(); theirs.touch(2); meet(); } }
int main()
{
    pthread_barrier_init(&barrier, nullptr, 3); std::thread a(work), b(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        meet();
        mine.touch(2);
        meet();
        mine.touch(1 + round);
    }
    a.join(); b.join();
}
#elif defined(WAY_handover)
class Baton { public: void give(int to) { { std::lock_guard<std::mutex> l(m_); who_ = to; } c_.notify_all(); }
  void take(int me) { std::unique_lock<std::mutex> l(m_); while (who_ != me) c_.wait(l); } private: std::mutex m_; std::condition_variable c_; int who_ = 0; };
static Baton baton; static bool over;
static void work() { for (;;) { baton.take(1); if (over) return; theirs.touch(3); baton.give(0); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        baton.give(1);
        baton.take(0);
        mine.touch(2);
        mine.touch(1 + round);
    }
    over = true; baton.give(1); other.join();
}
#elif defined(WAY_held_mutex)
static std::mutex m; static std::atomic<int> phase{0};
static void work() { for (int r = 0; r < ROUNDS; r++) { while (phase != 2 * r + 1) usleep(1000); { std::lock_guard<std::mutex> l(m); phase = 2 * r + 2; theirs.touch(6); usleep(30000); } } }
static inline void go(int r) { phase = 2 * r + 1; while (phase != 2 * r + 2) usleep(500); }
static inline void locked(int n) { std::lock_guard<std::mutex> l(m); mine.touch(n); }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        go(round);
        locked(3);
        mine.touch(1);
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_eventfds)
struct Event { int fd = eventfd(0, 0); void set() { uint64_t one = 1; if (write(fd, &one, 8) != 8) abort(); } void wait() { uint64_t n; if (read(fd, &n, 8) != 8) abort(); } };
static Event ask, answer; static bool over;
static void work() { for (;;) { ask.wait(); if (over) return; theirs.touch(4); answer.set(); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        ask.set();
        answer.wait();
        mine.touch(4);
        mine.touch(1 + round);
    }
    over = true; ask.set(); other.join();
}
#elif defined(WAY_epoll)
struct Event { int fd = eventfd(0, 0); void set() { uint64_t one = 1; if (write(fd, &one, 8) != 8) abort(); } void wait() { uint64_t n; if (read(fd, &n, 8) != 8) abort(); } };
static Event ask, answer;
static void work() { for (int r = 0; r < ROUNDS; r++) { ask.wait(); usleep(200000); theirs.touch(4); answer.set(); } }
int main()
{
    int polled = epoll_create1(0); epoll_event event{EPOLLIN, {nullptr}}; epoll_ctl(polled, EPOLL_CTL_ADD, answer.fd, &event);
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        ask.set();
        if (epoll_wait(polled, &event, 1, -1) != 1) return 1; // which a stop ends by EINTR
        answer.wait();
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_futures)
static Queue<std::promise<int> *> asked;
static void work() { for (;;) { std::promise<int> *p = asked.pop(); if (!p) return; theirs.touch(4); p->set_value(4); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        std::promise<int> p; std::future<int> f = p.get_future();
        asked.push(&p);
        int got = f.get();
        mine.touch(got);
        mine.touch(1 + round);
    }
    asked.push(nullptr); other.join();
}
#elif defined(WAY_async)
static int job(int n) { theirs.touch(n); return n; }
int main()
{
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        auto f = std::async(std::launch::async, job, 3 + round);
        mine.touch(1);
        int got = f.get();
        mine.touch(got);
        mine.touch(1 + round);
    }
}
#elif defined(WAY_joins)
static void job(int n) { theirs.touch(n); }
int main()
{
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        std::thread one(job, 2), two(job, 3);
        mine.touch(1);
        one.join(); two.join();
        mine.touch(2);
        mine.touch(1 + round);
    }
}
#elif defined(WAY_timed)
class Flag { public: void set(bool v) { { std::lock_guard<std::mutex> l(m_); v_ = v; } c_.notify_all(); }
  bool wait(bool v) { std::unique_lock<std::mutex> l(m_); while (v_ != v) c_.wait_for(l, std::chrono::milliseconds(20)); return v_; } private: std::mutex m_; std::condition_variable c_; bool v_ = false; };
static Flag flag;
static void work() { for (int r = 0; r < ROUNDS; r++) { flag.wait(true); theirs.touch(2); flag.set(false); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        flag.set(true);
        flag.wait(false);
        mine.touch(3);
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_rwlocks)
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; static std::atomic<int> phase{0};
static void work() { for (int r = 0; r < ROUNDS; r++) { while (phase != 2 * r + 1) usleep(1000); pthread_rwlock_wrlock(&lock); phase = 2 * r + 2; theirs.touch(3); usleep(20000); pthread_rwlock_unlock(&lock); } }
static inline void go(int r) { phase = 2 * r + 1; while (phase != 2 * r + 2) usleep(500); }
static inline void reading(int n) { pthread_rwlock_rdlock(&lock); mine.touch(n); pthread_rwlock_unlock(&lock); }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        go(round);
        reading(2);
        mine.touch(1);
        mine.touch(1 + round);
    }
    other.join();
}
#elif defined(WAY_ring)
class Ring { public: void put(int v) { while (head_ - tail_ == 4) {} slots_[head_ % 4] = v; head_++; } int get() { while (head_ == tail_) {} int v = slots_[tail_ % 4]; tail_++; return v; }
  private: int slots_[4]; std::atomic<unsigned> head_{0}, tail_{0}; };
static Ring there, back;
static void work() { for (int n; (n = there.get()) >= 0;) { theirs.touch(n); back.put(n); } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        for (int i = 0; i < 6; i++) { there.put(1); back.get(); }
        there.put(2);
        int got = back.get();
        mine.touch(got);
        mine.touch(1 + round);
    }
    there.put(-1); other.join();
}
#elif defined(WAY_sockets)
static int pair[2];
static inline void send_to(int fd, int n) { if (write(fd, &n, sizeof n) != sizeof n) abort(); }
static inline int receive(int fd) { int n; pollfd p{fd, POLLIN, 0}; while (poll(&p, 1, -1) < 1) {} if (read(fd, &n, sizeof n) != sizeof n) abort(); return n; }
static void work() { for (int n; (n = receive(pair[1])) >= 0;) { theirs.touch(n); send_to(pair[1], n + 1); } }
int main()
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) abort(); std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        send_to(pair[0], 3);
        int got = receive(pair[0]);
        mine.touch(got);
        mine.touch(1 + round);
    }
    send_to(pair[0], -1); other.join();
}
#elif defined(WAY_thrown)
static Queue<int> asked, answered;
static void work() { for (;;) { int n = asked.pop(); if (n < 0) return; theirs.touch(n); answered.push(n); } }
static inline int checked(int n) { if (n == 4) throw std::runtime_error("four"); return n; }
static inline int next_answer() { int n = answered.pop(); return checked(n); }
static inline int careful() { try { return next_answer(); } catch (const std::runtime_error &) { return 7; } }
int main()
{
    std::thread other(work);
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        asked.push(3 + round % 2);
        int got = careful();
        mine.touch(got);
        mine.touch(1 + round);
    }
    asked.push(-1); other.join();
}
#elif defined(WAY_engine_like)
class Engine { public:
  Engine() { for (int i = 0; i < 2; i++) workers_.emplace_back([this] { run(); }); }
  ~Engine() { { std::lock_guard<std::mutex> l(m_); stop_ = true; } cv_.notify_all(); for (auto &t : workers_) t.join(); }
  void load(int n) { for (int i = 0; i < n; i++) kept_.push_back(std::make_unique<std::vector<float>>(4 + i % 8)); mine.touch(2); }
  void decode(int n) { { std::lock_guard<std::mutex> l(m_); for (int i = 0; i < n; i++) q_.push(i); left_ = n; } cv_.notify_all(); std::unique_lock<std::mutex> l(m_); done_.wait(l, [this] { return left_ == 0; }); }
  void reset() { kept_.clear(); }
 private:
  void run() { for (;;) { std::unique_lock<std::mutex> l(m_); cv_.wait(l, [this] { return stop_ || !q_.empty(); }); if (stop_) return; q_.pop(); theirs.touch(1); if (--left_ == 0) done_.notify_one(); } }
  std::vector<std::unique_ptr<std::vector<float>>> kept_; std::queue<int> q_; std::mutex m_; std::condition_variable cv_, done_; std::vector<std::thread> workers_; int left_ = 0; bool stop_ = false; };
int main()
{
    Engine engine;
    for (int round = 0; round < ROUNDS; round++) {
        in_round = round; // START
        engine.load(30);
        engine.decode(20);
        engine.reset();
        mine.touch(1 + round);
    }
}
#endif
