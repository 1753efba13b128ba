// What decoding and the maps share: how one warp scores 32 keys of the KV cache for one query, and how q is read.
//
// A warp is four groups of eight lanes. Group g takes the keys 4 i + g, i = 0..7, of the 32; lane i of a group takes the
// 16-byte chunks i, i + 8, .. of a row of K or V. So a warp's loads cover whole rows that lie side by side, and each lane
// ends with the score of one key: lane 8 g + i that of key 4 i + g. The order of every sum is fixed by the key and D alone.
#pragma once
#include <climits>

#include "element.cuh"

constexpr unsigned FULL_WARP = 0xffffffffu;
constexpr float LOG2E = 1.4426950408889634f;

// The elements of a chunk as floats.
template <class T, int N> __device__ __forceinline__ void unpack(const void* bits, float* x) {
  T e[N];
  memcpy(e, bits, sizeof e);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = to_float(e[i]);
}

// Four neighbours of an array whose element is known at run time only; index a multiple of 4.
__device__ __forceinline__ float4 load4(const void* a, size_t index, int element) {
  if (element == F32) return load4(static_cast<const float*>(a) + index);
  if (element == F16) return load4(static_cast<const __half*>(a) + index);
  return load4(static_cast<const __nv_bfloat16*>(a) + index);
}

// This lane's chunks of q; zero beyond D, so that a chunk there adds nothing.
// qkv [R, 3C], index = row * 3C + head * D, q [CH * E]
template <class T, int CH>
__device__ __forceinline__ void load_q(const void* qkv, size_t index, int element, int D, float (&q)[CH * per16<T>]) {
  constexpr int E = per16<T>;
  const int i = threadIdx.x & 7;
#pragma unroll
  for (int j = 0; j < CH; j++) {
    const int d = (i + 8 * j) * E;
#pragma unroll
    for (int e = 0; e < E; e += 4) {
      const float4 x = d < D ? load4(qkv, index + d + e, element) : make_float4(0.f, 0.f, 0.f, 0.f);
      float* to = &q[j * E + e];
      to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
    }
  }
}

// This lane's chunks of U keys, those of steps first .. first + U - 1; zero beyond D and beyond the valid keys, which are not read.
// rows [32, D]: the warp's keys in the cache
template <class T, int CH, int U>
__device__ __forceinline__ void load_keys(const T* rows, int first, int valid, int D, uint4 (&raw)[U][CH]) {
  constexpr int E = per16<T>;
  const int group = (threadIdx.x >> 3) & 3, i = threadIdx.x & 7;
#pragma unroll
  for (int u = 0; u < U; u++) {
    const int key = 4 * (first + u) + group;
#pragma unroll
    for (int j = 0; j < CH; j++) {
      const int d = (i + 8 * j) * E;
      raw[u][j] = key < valid && d < D ? *reinterpret_cast<const uint4*>(rows + key * D + d) : uint4{0, 0, 0, 0};
    }
  }
}

template <class T, int CH> __device__ __forceinline__ float dot_chunks(const float (&q)[CH * per16<T>], const uint4 (&raw)[CH]) {
  constexpr int E = per16<T>;
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < CH; j++) {
    float k[E];
    unpack<T, E>(&raw[j], k);
#pragma unroll
    for (int e = 0; e < E; e++) sum = fmaf(q[j * E + e], k[e], sum);
  }
  return sum;
}

// Eight sums over the eight lanes of a group, lane i ending with sum i: seven shuffles where eight butterflies take 24.
__device__ __forceinline__ float reduce_scatter8(float (&part)[8]) {
  const int i = threadIdx.x & 7;
#pragma unroll
  for (int half = 4; half > 0; half >>= 1) {
    const bool upper = i & half;
#pragma unroll
    for (int k = 0; k < half; k++) {
      const float send = upper ? part[k] : part[k + half], keep = upper ? part[k + half] : part[k];
      part[k] = keep + __shfl_xor_sync(FULL_WARP, send, half);
    }
  }
  return part[0];
}

// The index among the warp's 32 keys of the key whose score this lane holds.
__device__ __forceinline__ int lane_key() { return 4 * (threadIdx.x & 7) + ((threadIdx.x >> 3) & 3); }

// q.k of this lane's key; 0 where the key is not valid. All 32 lanes take part.
template <class T, int CH>
__device__ __forceinline__ float score_keys(const float (&q)[CH * per16<T>], const T* rows, int valid, int D) {
  constexpr int U = 8 / CH;
  float part[8];
#pragma unroll
  for (int first = 0; first < 8; first += U) {
    uint4 raw[U][CH];
    load_keys<T, CH, U>(rows, first, valid, D, raw);
#pragma unroll
    for (int u = 0; u < U; u++) part[first + u] = dot_chunks<T, CH>(q, raw[u]);
  }
  return reduce_scatter8(part);
}
