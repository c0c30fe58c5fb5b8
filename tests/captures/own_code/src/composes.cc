// A user's program over a library of headers: each batch composes two FSTs and keeps the result.
#include <fst/fstlib.h>

#include <cstdio>
#include <memory>
#include <vector>

using fst::StdArc;
using fst::StdVectorFst;

static StdVectorFst Chain(int states, int labels) {
  StdVectorFst chain;
  chain.SetStart(chain.AddState());
  for (int n = 0; n < states; ++n) {
    const int next = chain.AddState();
    for (int label = 1; label <= labels; ++label) chain.AddArc(n, StdArc(label, label, 0.5F, next));
  }
  chain.SetFinal(states, 0);
  return chain;
}

int main() {
  std::vector<std::unique_ptr<StdVectorFst>> kept;
  const StdVectorFst words = Chain(60, 8);
  for (int batch = 0; batch < 4; ++batch) {
    auto result = std::make_unique<StdVectorFst>();
    fst::Compose(Chain(60, 8), words, result.get());
    kept.push_back(std::move(result));
  }
  std::printf("%zu results\n", kept.size());
}
