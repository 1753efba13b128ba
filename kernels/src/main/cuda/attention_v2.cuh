// Version 2: online softmax, one query row per warp.
//
// Idea: a running maximum m and sum l make the softmax one pass (Milakov and Gimelshein, "Online
//   normalizer calculation for softmax", 2018), so no score ever reaches global memory. A warp
//   takes 32 keys at a time: first every lane makes the score of one key, then every lane sums
//   its columns of P . V.
// Changed from version 1: one kernel, no scratch, a row's work spread over 32 lanes.
// Limits: K and V are read once per row, from cache at best; no reuse between rows, and a lane reads
//   a K row of its own, so its loads do not coalesce.
// D a multiple of 8 up to 128. Gain: not yet measured.
#pragma once
#include "attention_common.cuh"

// Grid (ceil(rows / 4), H, n), block 128, shared memory 4 * (D + 32) floats: per warp q and p.
template <class E>
__device__ __forceinline__ void attention_v2(const Prefill<E>& prefill) {
  DYN_SMEM(smem);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, D = prefill.D;
  const HeadSegment<E> a(prefill, prefill.segments[blockIdx.z], blockIdx.y);
  const int row = blockIdx.x * 4 + warp;
  if (row >= a.rows) return;  // the whole warp; nobody waits for it
  float* q = reinterpret_cast<float*>(smem) + warp * (D + 32);  // [D], scaled
  float* p = q + D;                                             // [32]
  for (int d = lane; d < D; d += 32) q[d] = prefill.scale * load(a.q(row) + d);
  __syncwarp();

  const int visible = a.visible(row);
  float m = -INFINITY, l = 0.f;
  float o[4] = {0.f, 0.f, 0.f, 0.f};  // columns lane, lane + 32, ..
  for (int key0 = 0; key0 < visible; key0 += 32) {
    float s = -INFINITY;
    if (key0 + lane < visible) {
      s = 0.f;
      const E* k = a.k(key0 + lane);
      for (int d = 0; d < D; d += 4) {
        const float4 x = *reinterpret_cast<const float4*>(q + d), y = load4(k + d);
        float dot = multiply_add(x.y, y.y, x.x * y.x);
        dot = multiply_add(x.z, y.z, dot);
        s += multiply_add(x.w, y.w, dot);
      }
    }
    const float mNew = fmaxf(m, warp_max(s));
    const float shrink = expf(m - mNew);  // 0 at first, when m is -inf
    const float e = expf(s - mNew);
    m = mNew;
    l = l * shrink + e;  // of this lane's keys; the lanes meet at the end
    p[lane] = e;
    __syncwarp();
    const int count = min(32, visible - key0);
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const int d = lane + 32 * c;
      if (d < D) {
        o[c] *= shrink;
        for (int j = 0; j < count; j++) o[c] = multiply_add(p[j], load(a.v(key0 + j) + d), o[c]);
      }
    }
    __syncwarp();  // a shuffle orders no memory: p is read before it is written again
  }
  l = warp_sum(l);
#pragma unroll
  for (int c = 0; c < 4; c++) {
    const int d = lane + 32 * c;
    if (d < D) store(a.o(row) + d, o[c] / l);
  }
  if (lane == 0) a.lse(row) = m + logf(l);
}

#define ATTENTION_V2(E, element)                                                              \
  extern "C" __global__ void __launch_bounds__(128) attention_v2_##element(PREFILL_PARAMETERS(E)) { \
    attention_v2(PREFILL(E));                                                                 \
  }                                                                                           \
  EXPORT_KERNEL(attention_v2_##element)

ATTENTION_V2(float, f32)
ATTENTION_V2(__half, f16)
ATTENTION_V2(__nv_bfloat16, bf16)
