// The C++ half of a small program that Python drives: it translates lines of words, and keeps too much.
//
// What leaks is small. What changes a lot beside it is healthy: a dictionary that is loaded once, and a scratch
// buffer whose size goes up and down with each batch. Totals therefore say nothing.
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Entry {
  std::string word;
  std::vector<float> weights;
};

class Translator {
 public:
  void load(int words) {
    dictionary_.reserve(words);
    for (int n = 0; n < words; ++n)
      dictionary_.push_back({"entry number " + std::to_string(n), std::vector<float>(64)});
  }

  std::int64_t translate(const char *line, std::int64_t batch) {
    scratch_.assign(1000 * (100 + batch * 37 % 100), 0.0F);
    std::int64_t found = 0;
    for (const char *at = line; (at = std::strchr(at, ' ')) != nullptr; ++at) found += look_up(at + 1, batch);
    return found;
  }

  std::int64_t kept_bytes() const { return kept_bytes_; }

 private:
  // The key holds the number of the batch, so that nothing is ever found again, and nothing is ever erased.
  int look_up(const char *word, std::int64_t batch) {
    char *copy = remember(word, batch);
    if (copy == nullptr) return 0;
    seen_[copy] = batch;
    return 1;
  }

  char *remember(const char *word, std::int64_t batch) {
    constexpr std::size_t size = 64;
    char *copy = new char[size];
    std::memset(copy, 0, size);
    std::strncpy(copy, word, size - 24);
    std::strcat(copy, std::to_string(batch).c_str());
    kept_bytes_ += size;
    return copy;
  }

  std::vector<Entry> dictionary_;
  std::vector<float> scratch_;
  std::unordered_map<const char *, std::int64_t> seen_;
  std::int64_t kept_bytes_ = 0;
};

Translator translator;

}  // namespace

extern "C" {
void core_load(int words) { translator.load(words); }
std::int64_t core_translate(const char *line, std::int64_t batch) { return translator.translate(line, batch); }
std::int64_t core_kept_bytes(void) { return translator.kept_bytes(); }
}
