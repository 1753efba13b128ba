// Layer normalisation of a row by one warp, as layernorm_v3 and the products that stage it (gemv.cu) do it
// alike, to the bit: every multiply-add is named, so that no compiler fuses one here and another there.
#pragma once
#include "element.cuh"

// Of a row: y = (x - mean) * scale * gamma + beta.
struct RowNorm {
  float mean, scale;
};

__device__ __forceinline__ float normalised(float x, const RowNorm& of, float gamma, float beta) {
  return fmaf((x - of.mean) * of.scale, gamma, beta);
}

// Of a row of C elements, a multiple of 8; all lanes get it. read(c, v) and then, once more, again(c, v) give
// elements c .. c + 7, of which each lane asks for the same both times.
template <class Read, class Again>
__device__ __forceinline__ RowNorm norm_of(int C, float eps, Read read, Again again) {
  const int lane = threadIdx.x % 32;
  float sum = 0;
  for (int c = lane * 8; c < C; c += 256) {
    float v[8];
    read(c, v);
    sum += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
  const float mean = warp_sum(sum) / C;
  float squares = 0;
  for (int c = lane * 8; c < C; c += 256) {
    float v[8];
    again(c, v);
#pragma unroll
    for (int i = 0; i < 8; i++) squares = fmaf(v[i] - mean, v[i] - mean, squares);
  }
  return {mean, 1.0f / sqrtf(warp_sum(squares) / C + eps)};
}
