// A small best-fit allocator with coalescing after the published design, in the layouts of four libraries.
// Its "device" is a counter: no address that it gives out can be read; with -DREAL_MEMORY it is memory, which clients fill (malloc's where REGIONS_IN_HEAP is set).
// It does what each line of its input asks for:
//   new LIMIT GROWTH COLLECTS OPTION OPERATIONS SEED   a fresh allocator, then that many random operations; prints it
//   owners OPERATIONS SEED                              more of them, whose frames are noted; prints each chunk's
//   try SIZE ALIGNMENT END STREAM                       what becomes of a request; then all is as it was
//   refill LIMIT GROWTH SIZES...                        a fresh allocator, then these requests; prints it
//   many N                                              a fresh allocator with N chunks
//   move                                                to another address; prints it
//   break WHAT                                          damages it
// OPTION: 0 plain, 1 freed chunks keep a time stamp, 2 filled from both ends, 3 three streams.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/mman.h>

#ifndef LAYOUT
#define LAYOUT 2024  // or 110 (TensorFlow 1.10), 2026 (XLA), 1320 (onnxruntime 1.32)
#endif
#if LAYOUT == 110
#define SPACE tensorflow
#define NAME BFCAllocator
#elif LAYOUT == 1320
#define SPACE onnxruntime
#define NAME BFCArena
#else
#define SPACE tsl
#define NAME BFCAllocator
#endif

namespace SPACE {

using Handle = size_t;
constexpr Handle NONE = ~size_t{0};
constexpr int BINS = 21;
enum { GAP = 0, LOWER = 1, UPPER = 2 };

struct Frame {
  std::string name;
  std::vector<std::pair<std::string, std::string>> arguments;
};

struct Chunk {
  size_t size = 0, requested = 0;
  int64_t id = -1;
  char *ptr = nullptr;
  Handle prev = NONE, next = NONE;
  int bin = -1;
#if LAYOUT == 1320
  void *stream = nullptr;
  uint64_t stream_time = 0;
#elif LAYOUT != 110
  uint64_t freed_at = 0;
#endif
#if LAYOUT == 2026
  uint8_t tag = LOWER;
  std::optional<std::vector<Frame>> annotation;  // who allocates it, the innermost frame last
#endif
#ifdef NEWER
  uint64_t more[NEWER] = {};  // what no version has yet
#endif
};

struct Region {
  char *ptr;
  size_t size;
  char *end;
#if LAYOUT == 1320
  int64_t number;
#endif
#if LAYOUT == 110 || LAYOUT == 1320
  Handle *handles;
#else
  std::vector<Handle> handles;
#endif
};

struct Bin {
  size_t floor;
#if LAYOUT == 2026
  std::vector<Handle> chunks;
  void *compare;
#else
  std::set<std::pair<size_t, std::pair<char *, Handle>>> chunks;
#endif
};

#if LAYOUT == 2026
// Frames of all shapes: none, short and long words, with and without arguments.
static std::optional<std::vector<Frame>> frames(int64_t id) {
  if (id % 4 == 0) return std::nullopt;
  Frame outer{"xla.execute", {{"executable", "jit_train_step_of_a_long_name_" + std::to_string(id % 7)}}};
  if (id % 4 == 1) return std::vector<Frame>{outer};
  Frame inner{id % 4 == 2 ? "xla.temp" : "a.frame.whose.name.is.longer.than.a.short.string", {}};
  if (id % 3) inner.arguments = {{"index", std::to_string(id % 5)}, {"a_key_that_is_longer_than_most", "live_out"}};
  return std::vector<Frame>{outer, inner};
}
#endif

class NAME {
 public:
  NAME(size_t limit, bool growth, bool collects);
  virtual ~NAME() {}
  virtual const char *kind() { return "pool"; }
  char *allocate(size_t bytes, size_t alignment, int end, uint64_t stream);
  void release(char *ptr, bool stamped);
  void print();
  void print_owners();
  const Chunk &at(char *ptr) { return chunks_[handle(ptr)]; }
  size_t in_use() const { return in_use_; }
  size_t pool() const {
    size_t sum = 0;
    for (auto &region : regions_) sum += region.size;
    return sum;
  }
  void many(size_t count);
  void damage(const std::string &what);
  struct State;
  State save();
  void restore(const State &state);

 private:
  static size_t rounded(size_t n) { return (n + 255) / 256 * 256; }
  static int bin_of(size_t n) {
    int number = 0;
    for (n = (n < 256 ? 256 : n) >> 8; n > 1 && number < BINS - 1; n >>= 1) number++;
    return number;
  }
  Region &region_of(char *ptr);
  Handle handle(char *ptr);
  void name(char *ptr, Handle h);
  Handle slot();
  void drop(Handle h);
  void insert(Handle h);
  void remove(Handle h);
  Handle find(size_t need, size_t alignment, int end, uint64_t stream);
  char *take(Handle h, size_t need, size_t bytes, size_t alignment, int end, uint64_t stream);
  void split(Handle h, size_t size);
  bool extend(size_t need);
  bool merge_stamped(size_t need);
  bool collect(size_t need);
  Handle coalesce(Handle h, bool also_stamped);
  bool mergeable(Handle a, Handle b, bool also_stamped);
  void join(Handle a, Handle b);
  size_t padding(const Chunk &chunk, size_t need, size_t alignment, int end);

#if LAYOUT == 110
  char retry_[40] = {};
  size_t limit_;
  char bins_[sizeof(Bin) * BINS];
  size_t next_region_;
  size_t total_ = 0;
  bool backpedaled_ = false;
  void *device_;
  std::string name_;
  char mutex_[16] = {};
  std::vector<Region> regions_;
  std::vector<Chunk> chunks_;
  Handle unused_ = NONE;
  std::vector<void *> visitors_;
  int64_t next_id_ = 1;
  int64_t allocations_ = 0, in_use_ = 0, peak_ = 0, largest_ = 0, bytes_limit_;
#elif LAYOUT == 1320
  std::string name_;
  char device_info_[24] = {};
  size_t limit_;
  int64_t strategy_ = 0;
  char bins_[sizeof(Bin) * BINS];
  size_t next_region_;
  void *device_;
  char mutex_[40] = {};
  std::vector<Region> regions_;
  std::vector<Chunk> chunks_;
  Handle unused_ = NONE;
  int64_t next_id_ = 1;
  int64_t allocations_ = 0, reserves_ = 0, extensions_ = 0, shrinkages_ = 0, in_use_ = 0, asked_ = 0, total_ = 0, peak_ = 0,
          largest_ = 0, bytes_limit_;
  std::unordered_map<void *, size_t> reserved_;
  int first_region_ = 1 << 20, dead_bytes_ = 128 << 20, first_growth_ = 2 << 20;
  int64_t largest_extension_ = 1 << 30;
#else
#if LAYOUT == 2026
  char retry_[24] = {};
  size_t limit_;
  int64_t split_above_ = 128 << 20;
#else
  char retry_[40] = {};
  size_t limit_;
#endif
  char bins_[sizeof(Bin) * BINS];
  struct Options {
    bool growth, retry, collects;
    double fraction;
#if LAYOUT == 2026
    bool both_ends;
    char policies[4];
#endif
  } options_ = {};
#if LAYOUT == 2026
  uint8_t free_tag_ = LOWER;
#endif
  size_t next_region_;
  bool joins_ = false;
  void *device_;
  std::string name_;
  void *timing_ = nullptr;
  char stamped_[80] = {};
  uint64_t frontier_ = 0;
#if LAYOUT == 2026
  uint64_t mutex_ = 0;
#else
  char mutex_[16] = {};
#endif
  std::vector<Region> regions_;
  std::vector<Chunk> chunks_;
  Handle unused_ = NONE;
#if LAYOUT == 2026
  Handle gap_ = NONE;
#endif
  int64_t next_id_ = 1;
  struct Stats {
    int64_t allocations = 0, in_use = 0, peak = 0, largest = 0;
    int64_t limit = 0;
    bool has_limit = true;
    int64_t reserved = 0, peak_reserved = 0, reservable = 0;
    bool has_reservable = false;
    int64_t largest_free = 0, pool = 0;
    bool has_pool = true;
    int64_t peak_pool = 0;
    bool has_peak_pool = true;
  } stats_;
  int64_t &allocations_ = stats_.allocations, &in_use_ = stats_.in_use, &peak_ = stats_.peak, &largest_ = stats_.largest,
          &total_ = stats_.pool;
#endif
  bool growth_, collects_;

 public:
  bool both_ends = false, annotates = false;

 private:
  uint64_t clock_ = 0;
  char *device_next_ = (char *)0x7000000000;

  Bin &bin(int number) { return *reinterpret_cast<Bin *>(bins_ + number * sizeof(Bin)); }
  uint64_t stamp(Handle h) {
#if LAYOUT == 110 || LAYOUT == 1320
    return 0;
#else
    return chunks_[h].freed_at;
#endif
  }
  int tag(Handle h) {
#if LAYOUT == 2026
    return chunks_[h].tag;
#else
    return LOWER;
#endif
  }
  void set_tag(Handle h, int value) {
#if LAYOUT == 2026
    chunks_[h].tag = uint8_t(value);
    if (value == GAP) gap_ = h;
    else if (gap_ == h) gap_ = NONE;
#endif
  }
  uint64_t stream(Handle h) {
#if LAYOUT == 1320
    return uint64_t(chunks_[h].stream);
#else
    return 0;
#endif
  }
};

struct NAME::State {
  std::vector<Region> regions;
  std::vector<std::vector<Handle>> handles;
  std::vector<Chunk> chunks;
  std::vector<Bin> bins;
  Handle unused, gap;
  size_t next_region;
  int64_t next_id, counters[5];
  char *device_next;
};

NAME::NAME(size_t limit, bool growth, bool collects)
    : limit_(limit), growth_(growth), collects_(collects) {
  device_ = (void *)0x10;
  name_ = "the_pool_of_a_test";
#if LAYOUT == 110 || LAYOUT == 1320
  bytes_limit_ = int64_t(limit);
#else
  stats_.limit = int64_t(limit);
  options_.growth = growth;
  options_.retry = true;
  options_.collects = collects;
#endif
  size_t first = LAYOUT == 110 || LAYOUT == 1320 ? 1 << 20 : 2 << 20;
  next_region_ = rounded(growth ? std::min(limit, first) : limit);
  for (int number = 0; number < BINS; number++) new (&bin(number)) Bin{size_t{256} << number, {}};
}

Region &NAME::region_of(char *ptr) {
  for (auto &region : regions_)
    if (region.ptr <= ptr && ptr < region.end) return region;
  abort();
}
Handle NAME::handle(char *ptr) {
  Region &region = region_of(ptr);
  return region.handles[(ptr - region.ptr) >> 8];
}
void NAME::name(char *ptr, Handle h) {
  Region &region = region_of(ptr);
  region.handles[(ptr - region.ptr) >> 8] = h;
}
Handle NAME::slot() {
  if (unused_ != NONE) {
    Handle h = unused_;
    unused_ = chunks_[h].next;
    chunks_[h].next = NONE;
    return h;
  }
  chunks_.emplace_back();
  return chunks_.size() - 1;
}
void NAME::drop(Handle h) {
  name(chunks_[h].ptr, NONE);
  chunks_[h].id = -1;
  chunks_[h].bin = -1;
#if LAYOUT == 2026
  chunks_[h].annotation.reset();
#endif
  chunks_[h].next = unused_;
  unused_ = h;
}
void NAME::insert(Handle h) {
  if (tag(h) == GAP) return;
  Chunk &chunk = chunks_[h];
  chunk.bin = bin_of(chunk.size);
#if LAYOUT == 2026
  bin(chunk.bin).chunks.push_back(h);
#else
  bin(chunk.bin).chunks.insert({chunk.size, {chunk.ptr, h}});
#endif
}
void NAME::remove(Handle h) {
  Chunk &chunk = chunks_[h];
  if (chunk.bin < 0) return;
  auto &set = bin(chunk.bin).chunks;
#if LAYOUT == 2026
  for (auto one = set.begin(); one != set.end(); ++one)
    if (*one == h) {
      set.erase(one);
      break;
    }
#else
  set.erase({chunk.size, {chunk.ptr, h}});
#endif
  chunk.bin = -1;
}

size_t NAME::padding(const Chunk &chunk, size_t need, size_t alignment, int end) {
  if (LAYOUT != 2026 || alignment <= 256) return 0;
  size_t start = size_t(chunk.ptr);
  if (end == UPPER) return (start + chunk.size - need) % alignment;
  return (alignment - start % alignment) % alignment;
}

Handle NAME::find(size_t need, size_t alignment, int end, uint64_t stream_asked) {
  for (int number = bin_of(need); number < BINS; number++) {
    std::map<std::pair<size_t, char *>, Handle> sorted;
#if LAYOUT == 2026
    for (Handle h : bin(number).chunks) sorted[{chunks_[h].size, chunks_[h].ptr}] = h;
#else
    for (auto &one : bin(number).chunks) sorted[{one.first, one.second.first}] = one.second.second;
#endif
    for (auto &one : sorted) {
      Chunk &chunk = chunks_[one.second];
      if (tag(one.second) != end && LAYOUT == 2026) continue;
      if (stream(one.second) && stream_asked && stream(one.second) != stream_asked) continue;
      if (stream(one.second) && !stream_asked && LAYOUT == 1320) continue;
      if (chunk.size >= need && chunk.size - need >= padding(chunk, need, alignment, end)) return one.second;
    }
  }
#if LAYOUT == 2026
  if (gap_ != NONE) {
    Chunk &gap = chunks_[gap_];
    if (gap.size >= need && gap.size - need >= padding(gap, need, alignment, end)) return gap_;
  }
#endif
  return NONE;
}

void NAME::split(Handle h, size_t size) {
  Handle made = slot();
  Chunk &chunk = chunks_[h], &rest = chunks_[made];
  int tag_before = tag(h);
  rest = Chunk();
  rest.ptr = chunk.ptr + size;
  rest.size = chunk.size - size;
  rest.prev = h;
  rest.next = chunk.next;
#if LAYOUT == 1320
  rest.stream = chunk.stream;
#elif LAYOUT != 110
  rest.freed_at = chunk.freed_at;
#endif
  chunk.size = size;
  chunk.next = made;
  if (rest.next != NONE) chunks_[rest.next].prev = made;
  name(rest.ptr, made);
  set_tag(made, tag_before);
}

char *NAME::take(Handle h, size_t need, size_t bytes, size_t alignment, int end, uint64_t stream_asked) {
  bool is_gap = tag(h) == GAP;
  remove(h);
  size_t pad = padding(chunks_[h], need, alignment, end);
  if (end == UPPER) {  // what lies below and behind it stays free, however little it is
    if (pad) {
      split(h, chunks_[h].size - pad);
      Handle behind = chunks_[h].next;
      set_tag(behind, UPPER);
      insert(behind);
      if (is_gap) set_tag(h, GAP);
    }
    if (chunks_[h].size > need) {
      split(h, chunks_[h].size - need);
      Handle upper = chunks_[h].next;
      set_tag(h, is_gap ? GAP : UPPER);
      insert(h);
      h = upper;
    }
  } else {
    if (pad) {
      split(h, pad);
      Handle aligned = chunks_[h].next;
      set_tag(h, LOWER);
      insert(h);
      h = aligned;
      if (is_gap) set_tag(h, GAP);
    }
    if (chunks_[h].size >= 2 * need || chunks_[h].size - need >= (128u << 20)) {
      split(h, need);
      Handle rest = chunks_[h].next;
      set_tag(rest, is_gap ? GAP : LOWER);
      insert(rest);
    }
  }
  Chunk &chunk = chunks_[h];
#if LAYOUT == 2026
  if (gap_ == h) gap_ = NONE;
  chunk.tag = uint8_t(end);
  if (annotates) chunk.annotation = frames(next_id_);
#endif
  chunk.requested = bytes;
  chunk.id = next_id_++;
#if LAYOUT == 1320
  if (!chunk.stream) chunk.stream = (void *)stream_asked;
  asked_ += int64_t(bytes);
#elif LAYOUT != 110
  chunk.freed_at = 0;
#endif
  allocations_++;
  in_use_ += int64_t(chunk.size);
  peak_ = std::max(peak_, in_use_);
  largest_ = std::max(largest_, int64_t(chunk.size));
#ifdef REAL_MEMORY
  memset(chunk.ptr, 1, bytes);
#endif
  return chunk.ptr;
}

bool NAME::extend(size_t need) {
  size_t available = (limit_ - size_t(total_)) / 256 * 256;
  if (need > available) return false;
  bool increased = false;
  while (need > next_region_) {
    next_region_ *= 2;
    increased = true;
  }
  size_t size = std::min(next_region_, available);
  if (!increased) next_region_ *= 2;
  char *ptr = device_next_;
  device_next_ += size + (1 << 20);
#ifdef REAL_MEMORY
  if (getenv("REGIONS_IN_HEAP"))
    ptr = (char *)malloc(size);
  else
    ptr = (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#endif
  total_ += int64_t(size);
  Region region{};
  region.ptr = ptr;
  region.size = size;
  region.end = ptr + size;
#if LAYOUT == 110 || LAYOUT == 1320
  region.handles = new Handle[(size + 255) / 256];
  for (size_t index = 0; index < (size + 255) / 256; index++) region.handles[index] = NONE;
#else
  region.handles.assign((size + 255) / 256, NONE);
#endif
  regions_.push_back(region);
  Handle h = slot();
  chunks_[h] = Chunk();
  chunks_[h].ptr = ptr;
  chunks_[h].size = size;
  name(ptr, h);
  if (both_ends) set_tag(h, GAP);
  insert(h);
  return true;
}

bool NAME::mergeable(Handle a, Handle b, bool also_stamped) {
  if (chunks_[a].id != -1 || chunks_[b].id != -1) return false;
  if (!also_stamped && (stamp(a) || stamp(b))) return false;
  if (stream(a) != stream(b)) return false;
  return tag(a) == tag(b) || tag(a) == GAP || tag(b) == GAP || (tag(a) == LOWER && tag(b) == UPPER);
}

void NAME::join(Handle a, Handle b) {
  int tag_after = tag(a) == tag(b) ? tag(a) : int(GAP);
  set_tag(b, LOWER);
  Chunk &one = chunks_[a], &two = chunks_[b];
  one.size += two.size;
  one.next = two.next;
  if (one.next != NONE) chunks_[one.next].prev = a;
#if LAYOUT != 110 && LAYOUT != 1320
  one.freed_at = std::max(one.freed_at, two.freed_at);
#endif
  drop(b);
  set_tag(a, tag_after);
}

Handle NAME::coalesce(Handle h, bool also_stamped) {
  Handle next = chunks_[h].next, prev = chunks_[h].prev;
  if (next != NONE && mergeable(h, next, also_stamped)) {
    remove(next);
    join(h, next);
  }
  if (prev != NONE && mergeable(prev, h, also_stamped)) {
    remove(prev);
    join(prev, h);
    h = prev;
  }
  return h;
}

void NAME::release(char *ptr, bool stamped) {
  Handle h = handle(ptr);
  Chunk &chunk = chunks_[h];
  in_use_ -= int64_t(chunk.size);
  chunk.id = -1;
#if LAYOUT == 2026
  chunk.annotation.reset();
#endif
#if LAYOUT == 1320
  asked_ -= int64_t(chunk.requested);
#elif LAYOUT != 110
  if (stamped) {
    chunk.freed_at = ++clock_;
    insert(h);
    return;
  }
#endif
  h = coalesce(h, false);
  if (both_ends && tag(h) != GAP) {  // at the border to the other end it is the gap
    Handle next = chunks_[h].next, prev = chunks_[h].prev;
    bool is_border = tag(h) == LOWER ? next == NONE || tag(next) != LOWER : prev == NONE || tag(prev) != UPPER;
    if (is_border) set_tag(h, GAP);
  }
  insert(h);
}

bool NAME::merge_stamped(size_t need) {
  for (auto &region : regions_)
    for (Handle h = handle(region.ptr); h != NONE; h = chunks_[h].next)
      if (chunks_[h].id == -1 && stamp(h)) {
        remove(h);
        Handle merged = coalesce(h, true);
        for (;;) {
          Handle next = chunks_[merged].next;
          if (next == NONE || !mergeable(merged, next, true)) break;
          remove(next);
          join(merged, next);
        }
        insert(merged);
        h = merged;
        if (chunks_[h].size >= need) return true;
      }
  return false;
}

bool NAME::collect(size_t need) {
  if (!collects_) return false;
  size_t idle = 0;
  std::vector<bool> is_idle;
  for (auto &region : regions_) {
    bool used = false;
    for (Handle h = handle(region.ptr); h != NONE; h = chunks_[h].next) used = used || chunks_[h].id != -1;
    is_idle.push_back(!used);
    if (!used) idle += region.size;
  }
  if (!idle || need > limit_ - size_t(total_) + idle) return false;
  std::vector<Region> kept;
  for (size_t number = 0; number < regions_.size(); number++)
    if (is_idle[number])
      for (Handle h = handle(regions_[number].ptr), next; h != NONE; h = next) {
        next = chunks_[h].next;
        remove(h);
        drop(h);
      }
  for (size_t number = 0; number < regions_.size(); number++)
    if (is_idle[number]) total_ -= int64_t(regions_[number].size);
    else kept.push_back(regions_[number]);
  regions_ = kept;
  return true;
}

char *NAME::allocate(size_t bytes, size_t alignment, int end, uint64_t stream_asked) {
  if (!bytes) return nullptr;
  size_t need = rounded(bytes);
  Handle h = find(need, alignment, end, stream_asked);
  if (h == NONE && extend(need)) h = find(need, alignment, end, stream_asked);
  if (h == NONE && merge_stamped(need)) h = find(need, alignment, end, stream_asked);
  if (h == NONE && collect(need) && extend(need)) h = find(need, alignment, end, stream_asked);
  return h == NONE ? nullptr : take(h, need, bytes, alignment, end, stream_asked);
}

void NAME::print() {
  printf("pool %zu %lld %zu\n", pool(), (long long)in_use_, regions_.size());
  for (auto &region : regions_)
    for (Handle h = handle(region.ptr); h != NONE; h = chunks_[h].next) {
      Chunk &c = chunks_[h];
      printf("%zu %zu %zu %d %d %d %llu %llu\n", size_t(c.ptr), c.size, c.id != -1 ? c.requested : 0, c.id != -1, c.bin,
             tag(h), (unsigned long long)stamp(h), (unsigned long long)stream(h));
    }
  puts("end");
}

void NAME::print_owners() {
#if LAYOUT == 2026
  for (auto &region : regions_)
    for (Handle h = handle(region.ptr); h != NONE; h = chunks_[h].next) {
      if (!chunks_[h].annotation) continue;
      std::string text;
      for (auto &frame : *chunks_[h].annotation) {
        text += (text.empty() ? "" : " / ") + frame.name;
        for (auto &one : frame.arguments)
          text += (&one == &frame.arguments[0] ? "{" : ", ") + one.first + "=" + one.second;
        if (!frame.arguments.empty()) text += "}";
      }
      printf("%zu %s\n", size_t(chunks_[h].ptr), text.c_str());
    }
#endif
  puts("end");
}

NAME::State NAME::save() {
  State state{regions_, {}, chunks_, {}, unused_, NONE, next_region_, next_id_,
              {allocations_, in_use_, peak_, largest_, int64_t(total_)}, device_next_};
  for (auto &region : regions_) {
    auto *first = &region.handles[0];
    state.handles.emplace_back(first, first + (region.size + 255) / 256);
  }
  for (int number = 0; number < BINS; number++) state.bins.push_back(bin(number));
#if LAYOUT == 2026
  state.gap = gap_;
#endif
  return state;
}
void NAME::restore(const State &state) {
  regions_ = state.regions;
  for (size_t number = 0; number < regions_.size(); number++)
    memcpy(&regions_[number].handles[0], state.handles[number].data(), state.handles[number].size() * sizeof(Handle));
  chunks_ = state.chunks;
  for (int number = 0; number < BINS; number++) bin(number) = state.bins[number];
  unused_ = state.unused;
#if LAYOUT == 2026
  gap_ = state.gap;
#endif
  next_region_ = state.next_region;
  next_id_ = state.next_id;
  allocations_ = state.counters[0];
  in_use_ = state.counters[1];
  peak_ = state.counters[2];
  largest_ = state.counters[3];
  total_ = state.counters[4];
  device_next_ = state.device_next;
}

void NAME::many(size_t count) {
  if (!extend(count * 256)) abort();
  chunks_.reserve(count + 1);
  Handle h = handle(regions_.back().ptr);
  remove(h);
  for (size_t number = 0; number < count; number++) {
    if (number + 1 < count) split(h, 256);
    Chunk &chunk = chunks_[h];
    chunk.requested = 200;
    chunk.id = number % 4 ? next_id_++ : -1;
    if (chunk.id != -1) in_use_ += int64_t(chunk.size);
    else insert(h);
    h = chunk.next;
  }
}

void NAME::damage(const std::string &what) {
  Handle first = handle(regions_[0].ptr), second = chunks_[first].next;
  if (what == "cycle") chunks_[chunks_[second].next].next = first;
  if (what == "range") chunks_[second].next = 1u << 30;
  if (what == "gap") chunks_[second].ptr += 256;
  if (what == "prev") chunks_[second].prev = 77;
  if (what == "size") chunks_[second].size *= 1024;
  if (what == "bin") chunks_[first].bin = chunks_[first].bin == 3 ? 4 : 3;
  if (what == "counter") in_use_ += 256;
  if (what == "total") total_ += 256;
  if (what == "handle") name(chunks_[second].ptr, NONE);
  if (what == "stray") name(chunks_[first].ptr + 256, 1);
  if (what == "late") next_id_ = 1;
  if (what == "short") {
    Handle last = first;
    while (chunks_[last].next != NONE) last = chunks_[last].next;
    chunks_[last].size -= 256;
  }
  if (what == "twin") {
    Chunk *used = nullptr;
    for (Handle h = first; h != NONE; h = chunks_[h].next) {
      if (chunks_[h].id == -1) continue;
      if (used) chunks_[h].id = used->id;
      used = &chunks_[h];
    }
  }
  if (what == "halves") {
    Handle h = first;
    while (h != NONE && (chunks_[h].id != -1 || chunks_[h].size < 1024)) h = chunks_[h].next;
    if (h == NONE) abort();
    remove(h);
    split(h, 256);
    insert(h);
    insert(chunks_[h].next);
  }
  if (what == "lock") *reinterpret_cast<uint64_t *>(&mutex_) = LAYOUT == 2026 ? 8 : 1;
#if LAYOUT == 2026
  if (what == "owner") {  // in three chunks, each time another pointer of it
    int which = 0;
    for (Handle h = first; h != NONE && which < 3; h = chunks_[h].next) {
      auto &note = chunks_[h].annotation;
      if (!note || (*note)[0].arguments.empty()) continue;
      void *places[] = {&*note, &(*note)[0].name, &(*note)[0].arguments[0].second};
      *static_cast<uint64_t *>(places[which]) = which == 1 ? 0x5a5a5a5a5a5a5a5a : 8;
      which++;
    }
  }
#endif
  if (what == "grow") chunks_.reserve(2 * chunks_.capacity() + 1);
  if (what == "vectors") memset((void *)&chunks_, 0x5a, sizeof chunks_);
  if (what == "bins") memset(bins_, 0, 512);
  if (what == "unmade") memset(bins_ + 10 * sizeof(Bin), 0, 11 * sizeof(Bin));  // as its constructor makes them one by one
}
}  // namespace SPACE

using Pool = SPACE::NAME;

static char *const room = static_cast<char *>(::operator new(sizeof(Pool), std::align_val_t{64}));
static Pool *pool;

static void random_operations(int option, int operations, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<char *> held;
  auto below = [&](size_t n) { return size_t(random() % n); };
  for (int number = 0; number < operations; number++) {
    if (!held.empty() && below(100) < 45) {
      size_t which = below(held.size());
      pool->release(held[which], option == 1 && below(3) == 0);
      held.erase(held.begin() + long(which));
    } else {
      size_t bytes = below(5) ? 1 + below(300000) : 1 + below(3000000);
      size_t alignment = below(6) ? 64 : size_t{256} << below(8);
      char *ptr = pool->allocate(bytes, alignment, option == 2 && below(2) ? 2 : 1, option == 3 ? 1 + below(3) : 0);
      if (ptr) held.push_back(ptr);
    }
  }
}

int main() {
  puts("ready");
  fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "new") {
      size_t limit;
      bool growth, collects;
      int option, operations;
      unsigned seed;
      words >> limit >> growth >> collects >> option >> operations >> seed;
      if (pool) pool->~Pool();
      pool = new (room) Pool(limit, growth, collects);
      pool->both_ends = option == 2;
      random_operations(option, operations, seed);
      pool->print();
    } else if (verb == "owners") {  // who allocates is noted from here on: allocates, and prints who has which chunk
      unsigned operations, seed;
      words >> operations >> seed;
      pool->annotates = true;
      random_operations(0, operations, seed);
      pool->print_owners();
    } else if (verb == "try") {
      size_t bytes, alignment;
      int end;
      uint64_t stream;
      while (words >> bytes >> alignment >> end >> stream) {
        auto state = pool->save();
        size_t before = pool->pool();
        char *ptr = pool->allocate(bytes, alignment, end, stream);
        printf("%zu %lld %zu\n", size_t(ptr), (long long)pool->pool() - (long long)before, ptr ? pool->at(ptr).size : 0);
        pool->restore(state);
      }
    } else if (verb == "refill") {
      size_t limit, bytes;
      bool growth;
      words >> limit >> growth;
      if (pool) pool->~Pool();
      pool = new (room) Pool(limit, growth, false);
      bool all = true;
      while (all && words >> bytes) all = pool->allocate(bytes, 64, 1, 0) != nullptr;
      puts(all ? "all" : "not all");
      pool->print();
    } else if (verb == "many") {
      size_t count;
      words >> count;
      if (pool) pool->~Pool();
      pool = new (room) Pool(count * 512, true, false);
      pool->many(count);
      puts("made");
    } else if (verb == "break") {
      std::string what;
      words >> what;
      pool->damage(what);
      puts("broken");
    } else if (verb == "move") {
      char *other = static_cast<char *>(::operator new(sizeof(Pool), std::align_val_t{64}));
      memcpy(other, room, sizeof(Pool));
      pool->damage("bins");
      pool = reinterpret_cast<Pool *>(other);
      pool->print();
    } else if (verb == "destroy") {
      pool->~Pool();
      memset(room, 0, 16);
      puts("destroyed");
    }
    fflush(stdout);
  }
}
