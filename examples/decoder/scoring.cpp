#include "scoring.h"

#include <cstdint>
#include <cstdlib>

// As in a library for matrices (OpenBLAS, MKL, …), the inner loop exists twice: for any processor, and for those with
// fused multiply-add, one of which is taken when the program starts. -DFOR_ANY_PROCESSOR leaves the second out.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(FOR_ANY_PROCESSOR)
#define TWICE __attribute__((target_clones("fma", "default")))
#else
#define TWICE
#endif

namespace {

// The weights of all layers alike. Made up, and the same on every machine; in a table, not on the heap.
class Weights {
 public:
  Weights() {
    std::uint32_t state = 1;
    for (float& weight : table_) {
      state = state * 1664525u + 1013904223u;
      weight = (static_cast<float>(state >> 20) - 2000.0f) / 16384.0f;
    }
  }
  const float* table() const { return table_.data(); }

 private:
  std::array<float, kNeurons * kNeurons> table_;
};

// outputs = max(0, inputs · weights), four inputs at a time.
TWICE void pass_layer(const float* __restrict inputs, const float* __restrict weights, float* __restrict outputs) {
  for (int out = 0; out < kNeurons; ++out) outputs[out] = 0.01f;
  for (int in = 0; in < kNeurons; in += 4) {
    const float* __restrict row = weights + in * kNeurons;
    const float a = inputs[in], b = inputs[in + 1], c = inputs[in + 2], d = inputs[in + 3];
    for (int out = 0; out < kNeurons; ++out) {
      outputs[out] +=
          a * row[out] + b * row[kNeurons + out] + c * row[2 * kNeurons + out] + d * row[3 * kNeurons + out];
    }
  }
  for (int out = 0; out < kNeurons; ++out) outputs[out] = outputs[out] > 0.0f ? outputs[out] : 0.0f;
}

}  // namespace

WordScores::WordScores(const float* features, int layers) : features_(features) {
  if (layers == 0) return;
  static const Weights weights;
  std::array<float, kNeurons> inputs;
  for (int i = 0; i < kNeurons; ++i) outputs_[i] = features[i % kScoredFeatures];
  for (int layer = 0; layer < layers; ++layer) {
    inputs = outputs_;
    pass_layer(inputs.data(), weights.table(), outputs_.data());
  }
}
