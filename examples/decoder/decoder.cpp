// A program in the shape of a speech decoder: it loads a search graph, decodes batches of utterances
// in worker threads and is reset between two batches. All its data are made up; its memory isn't:
//
//   graph     very many small blocks, built by load() and deleted by reset()
//   features  one big vector, filled for each batch, cleared by reset(): its capacity stays
//   tokens    small blocks that come and go while an utterance is decoded
//   tasks     a map from utterance to outcome, that nothing ever erases: the leak
//
// It prints what each of them holds, in the bytes it asked for, so that a heap profiler can be checked.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "counting_allocator.h"
#include "scoring.h"
constexpr int kFeatureDimension = 40;
constexpr std::size_t kBeam = 12;  // tokens that survive a frame

struct Options {
  int states = 200000;    // of the graph
  int batches = 4;
  int utterances = 2000;  // in each batch
  int threads = 2, work = 0;  // layers of the acoustic model
  bool fixed = false;     // reset() forgets the tasks too
};

// The same numbers on every machine, whatever the standard library does.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {}
  std::uint32_t below(std::uint32_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33) % limit;
  }
  float score() { return static_cast<float>(below(1000)) / 1000.0f; }

 private:
  std::uint64_t state_;
};

struct Arc {
  int next_state;
  int word;
  float weight;
};

struct State {
  std::vector<Arc> arcs;
  bool final = false;
};

// The search graph: each state is a block of its own, its arcs are another.
class Graph {
 public:
  explicit Graph(int size) {
    Random random(7);
    states_.reserve(size);
    for (int number = 0; number < size; ++number) {
      add_state(random, number, size);
    }
  }

  const State& state(int number) const { return *states_[number]; }

  long heap_bytes() const {
    long bytes = sizeof(Graph) + states_.capacity() * sizeof(states_[0]);
    for (const auto& state : states_) {
      bytes += sizeof(State) + state->arcs.capacity() * sizeof(Arc);
    }
    return bytes;
  }

  long heap_blocks() const { return 2 + 2 * static_cast<long>(states_.size()); }

 private:
  void add_state(Random& random, int number, int size) {
    auto state = std::make_unique<State>();
    state->arcs.reserve(2);
    for (int arc = 0; arc < 2; ++arc) {
      state->arcs.push_back({static_cast<int>(random.below(size)), number % 5000, random.score()});
    }
    states_.push_back(std::move(state));
  }

  std::vector<std::unique_ptr<State>> states_;
};

struct Utterance {
  std::uint64_t id;
  std::size_t first_feature;  // where its frames start in the batch's features
  int frames;
};

// What is kept of an utterance once it is decoded.
struct TaskState {
  float score = 0;
  int frames = 0;
  std::array<int, 24> words{};
};

HeapCount task_heap;
using Tasks = std::map<std::uint64_t, TaskState, std::less<>,
                       CountingAllocator<std::pair<const std::uint64_t, TaskState>, task_heap>>;

// Hands utterances to the workers. Its places are allocated once, so it never grows.
class Queue {
 public:
  explicit Queue(std::size_t places) : ring_(places) {}

  void put(const Utterance& utterance) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return count_ < ring_.size(); });
    ring_[(first_ + count_++) % ring_.size()] = utterance;
    changed_.notify_all();
  }

  // Returns false when the queue is closed and empty.
  bool take(Utterance& utterance) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return count_ > 0 || closed_; });
    if (count_ == 0) return false;
    utterance = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --count_;
    changed_.notify_all();
    return true;
  }

  void close() {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::vector<Utterance> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool closed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A hypothesis: the best way so far into a state of the graph.
struct Token {
  int state;
  int word;
  float score;
  std::shared_ptr<const Token> previous;
};

class Decoder {
 public:
  explicit Decoder(const Options& options) : options_(options), queue_(64) {
    for (int number = 0; number < options_.threads; ++number) {
      workers_.emplace_back([this] { work(); });
    }
  }

  ~Decoder() {
    queue_.close();
    for (std::thread& worker : workers_) worker.join();
  }

  void load();
  void decode_batch(int batch);
  void reset();
  void report(const char* when) const;

 private:
  void work();
  void decode(const Utterance& utterance);
  void finish(const Utterance& utterance, const Token& best);

  const Options options_;
  std::unique_ptr<Graph> graph_;
  std::vector<float> features_;
  Queue queue_;
  std::vector<std::thread> workers_;

  std::mutex tasks_mutex_;
  Tasks tasks_;

  std::mutex pending_mutex_;
  std::condition_variable all_done_;
  int pending_ = 0;
};

void Decoder::load() {
  graph_ = std::make_unique<Graph>(options_.states);
}

// Decodes one batch; when it returns the workers are idle and have freed what they used.
void Decoder::decode_batch(int batch) {
  Random random(batch + 1);
  std::vector<Utterance> utterances;
  for (int number = 0; number < options_.utterances; ++number) {
    const int frames = 6 + static_cast<int>(random.below(8));
    utterances.push_back({static_cast<std::uint64_t>(batch) * 1000000 + number, features_.size(), frames});
    for (int i = 0; i < frames * kFeatureDimension; ++i) features_.push_back(random.score());
  }
  pending_ = options_.utterances;
  for (const Utterance& utterance : utterances) queue_.put(utterance);
  std::unique_lock<std::mutex> lock(pending_mutex_);
  all_done_.wait(lock, [this] { return pending_ == 0; });
}

// Back to the state before load(), as its author believed.
void Decoder::reset() {
  features_.clear();
  graph_.reset();
  if (options_.fixed) tasks_.clear();
}

void Decoder::work() {
  Utterance utterance;
  while (queue_.take(utterance)) {
    decode(utterance);
    std::lock_guard<std::mutex> lock(pending_mutex_);
    if (--pending_ == 0) all_done_.notify_one();
  }
}

// Passes tokens along the arcs, frame by frame, and keeps the best of them.
void Decoder::decode(const Utterance& utterance) {
  std::vector<std::shared_ptr<const Token>> active{std::make_shared<Token>(Token{0, -1, 0, nullptr})};
  for (int frame = 0; frame < utterance.frames; ++frame) {
    const WordScores scores(&features_[utterance.first_feature + frame * kFeatureDimension], options_.work);
    std::unordered_map<int, std::shared_ptr<const Token>> reached;
    for (const auto& token : active) {
      for (const Arc& arc : graph_->state(token->state).arcs) {
        const float score = token->score + arc.weight + scores.of(arc.word);
        auto& best = reached[arc.next_state];
        if (!best || best->score < score) {
          best = std::make_shared<Token>(Token{arc.next_state, arc.word, score, token});
        }
      }
    }
    active.clear();
    for (auto& entry : reached) active.push_back(std::move(entry.second));
    std::sort(active.begin(), active.end(), [](const auto& a, const auto& b) { return a->score > b->score; });
    if (active.size() > kBeam) active.resize(kBeam);
  }
  finish(utterance, *active.front());
}

void Decoder::finish(const Utterance& utterance, const Token& best) {
  std::lock_guard<std::mutex> lock(tasks_mutex_);
  TaskState& task = tasks_[utterance.id];
  task.score = best.score;
  task.frames = utterance.frames;
  std::size_t length = 0;
  for (const Token* token = &best; token->previous && length < task.words.size(); token = token->previous.get()) {
    task.words[length++] = token->word;
  }
}

void Decoder::report(const char* when) const {
  std::printf("%-8s graph %ld blocks %ld bytes, features %zu bytes, tasks %ld blocks %ld bytes\n", when,
              graph_ ? graph_->heap_blocks() : 0L, graph_ ? graph_->heap_bytes() : 0L,
              features_.capacity() * sizeof(float), task_heap.blocks.load(), task_heap.bytes.load());
  std::fflush(stdout);
}

namespace {

[[noreturn]] void usage(const char* problem) {
  std::fprintf(stderr,
               "decoder: %s\n"
               "usage: decoder [--states N] [--batches N] [--utterances N] [--threads N] [--work N] [--fixed]\n",
               problem);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, int*> numbers = {{"--states", &options.states},
                                               {"--batches", &options.batches},
                                               {"--utterances", &options.utterances},
                                               {"--threads", &options.threads}, {"--work", &options.work}};
  for (int i = 1; i < argc; ++i) {
    const auto number = numbers.find(argv[i]);
    if (std::strcmp(argv[i], "--fixed") == 0) {
      options.fixed = true;
    } else if (number == numbers.end()) {
      usage("unknown option");
    } else if (i + 1 == argc || (*number->second = std::atoi(argv[++i])) <= 0) {
      usage("an option needs a number above 0");
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Decoder decoder(options);
  decoder.report("start");
  for (int batch = 0; batch < options.batches; ++batch) {
    decoder.load();
    decoder.report("loaded");
    decoder.decode_batch(batch);
    decoder.report("decoded");
    decoder.reset();
    decoder.report("reset");
  }
  return 0;
}
