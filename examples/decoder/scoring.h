// What a decoder spends most of its time with: how well a word fits what was heard.

#pragma once

#include <cmath>

constexpr int kScoredFeatures = 40;

// The score of a word at a frame, computed over and over in `rounds` rounds; 0: as cheaply as can be.
inline float word_score(const float* features, int word, int rounds) {
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kScoredFeatures; ++i) {
      sum = sum * 0.5f + features[i] * features[(i + word + round) % kScoredFeatures];
    }
    sum = std::sqrt(sum * sum + 1.0f);
  }
  return features[word % kScoredFeatures] + 0.001f * sum;
}
