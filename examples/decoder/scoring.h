// What a decoder spends most of its time with: an acoustic model, which says how well each word fits what was heard.

#pragma once

#include <array>

constexpr int kScoredFeatures = 40;
constexpr int kNeurons = 256;  // of a layer

// The scores of all words at one frame. It takes no memory from the heap.
class WordScores {
 public:
  // A small neural network of so many `layers`; 0: as cheaply as can be.
  WordScores(const float* features, int layers);

  float of(int word) const { return features_[word % kScoredFeatures] + 0.001f * outputs_[word % kNeurons]; }

 private:
  const float* features_;
  std::array<float, kNeurons> outputs_{};
};
