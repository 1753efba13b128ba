// Version 1: as the formula reads.
//
// Idea: three kernels with the whole score matrix between them. One thread makes one score, one
//   thread normalises one row, one thread makes one output. The yardstick for the others.
// Limits: scratch of H * R * keys floats, written once and read three times; every thread reads its
//   q, k and v rows from global memory again; the softmax has one thread per row.
// Any D. Gain: not yet measured.
#pragma once
#include "attention_common.cuh"

// S [H, R, keyStride], grid (rows of the longest segment, ceil(keys / 128), n * H), block 128.
template <class E>
__device__ __forceinline__ void attention_v1_scores(const Prefill<E>& p, float* S, int R,
                                                    int keyStride) {
  const int h = blockIdx.z % p.H, segment = blockIdx.z / p.H;
  const HeadSegment<E> a(p, p.segments[segment], h);
  const int row = blockIdx.x, key = blockIdx.y * blockDim.x + threadIdx.x;
  if (row >= a.rows || key >= a.visible(row)) return;
  float s = 0.f;
  for (int d = 0; d < p.D; d++) s = multiply_add(load(a.q(row) + d), load(a.k(key) + d), s);
  S[((size_t)h * R + a.firstRow + row) * keyStride + key] = s * p.scale;
}

// S [H, R, keyStride] becomes P in place, grid (ceil(rows / 128), H, n), block 128.
template <class E>
__device__ __forceinline__ void attention_v1_softmax(const Prefill<E>& p, float* S, int R,
                                                     int keyStride) {
  const int h = blockIdx.y, row = blockIdx.x * blockDim.x + threadIdx.x;
  const HeadSegment<E> a(p, p.segments[blockIdx.z], h);
  if (row >= a.rows) return;
  float* P = S + ((size_t)h * R + a.firstRow + row) * keyStride;
  const int visible = a.visible(row);
  float m = -INFINITY, l = 0.f;
  for (int key = 0; key < visible; key++) m = fmaxf(m, P[key]);
  for (int key = 0; key < visible; key++) {
    P[key] = expf(P[key] - m);
    l += P[key];
  }
  for (int key = 0; key < visible; key++) P[key] /= l;
  a.lse(row) = m + logf(l);
}

// y from P [H, R, keyStride], grid (rows of the longest segment, 1, n * H), block 128.
template <class E>
__device__ __forceinline__ void attention_v1_values(const Prefill<E>& p, const float* S, int R,
                                                    int keyStride) {
  const int h = blockIdx.z % p.H, segment = blockIdx.z / p.H;
  const HeadSegment<E> a(p, p.segments[segment], h);
  const int row = blockIdx.x, d = threadIdx.x;
  if (row >= a.rows || d >= p.D) return;
  const float* P = S + ((size_t)h * R + a.firstRow + row) * keyStride;
  const int visible = a.visible(row);
  float o = 0.f;
  for (int key = 0; key < visible; key++) o = multiply_add(P[key], load(a.v(key) + d), o);
  store(a.o(row) + d, o);
}

#define ATTENTION_V1_STEP(E, element, step)                                                  \
  extern "C" __global__ void __launch_bounds__(128)                                          \
      attention_v1_##step##_##element(PREFILL_PARAMETERS(E), float* S, int R, int keyStride) { \
    attention_v1_##step(PREFILL(E), S, R, keyStride);                                        \
  }                                                                                          \
  EXPORT_KERNEL(attention_v1_##step##_##element)
#define ATTENTION_V1(E, element)           \
  ATTENTION_V1_STEP(E, element, scores)    \
  ATTENTION_V1_STEP(E, element, softmax)   \
  ATTENTION_V1_STEP(E, element, values)

ATTENTION_V1(float, f32)
ATTENTION_V1(__half, f16)
ATTENTION_V1(__nv_bfloat16, bf16)
