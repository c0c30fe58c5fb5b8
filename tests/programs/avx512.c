// Uses an AVX-512 instruction, which valgrind up to 3.19 (at least) doesn't know: avx512
// flags: -mavx512f
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>

void *kept;

void compute(float *values) {
  __m512 sum = _mm512_add_ps(_mm512_loadu_ps(values), _mm512_set1_ps(1.0f));
  _mm512_storeu_ps(values, sum);
}

int main(void) {
  float *values = calloc(16, sizeof *values);
  kept = values;
  compute(values);
  printf("%g\n", values[3]);
  return 0;
}
