// Attention of rows that each are one query of a sequence: decoding.
//
// v0  The formula, written down: one thread for each row, head and element of y goes over the keys twice, for the maximum and
//     for the sums, and makes every score anew. One kernel for all elements. Limits: those of v1.
//
// v1  Idea: split the keys (flash-decoding, Dao et al. 2023). With one query a head there are only R H rows of work, too few for
//     a card; so every 128 keys of a row and head are a block of their own, which leaves its unnormalised O, its maximum m and
//     its sum l, and the last of them to end joins the splits of the row: no second launch, and none of this for up to 128 keys.
//     A block's four warps take 32 keys each; K and V are read once,
//     16 bytes a lane, rows side by side; the dot products of a group of eight lanes meet in a reduce-scatter of seven shuffles.
//     The split is 128 keys whatever the launch, and splits are joined in order, whichever ends last: the bits of a row depend
//     on its keys alone, not on the grid, the batch or the other rows.
//     Limits: D a multiple of 8 up to 128; 128-key granularity leaves most SMs idle at short contexts and batch 1.
//     Gain over the prefill kernel on such rows: not yet measured.
//
// A row with no keys is a free slot of a batch: y = 0 and lse = -infinity. A row whose sequence or keys lie outside the cache, or
// which has more keys than the launch has splits for, reads nothing and gets NaN.
#include "attention_rows.cuh"

constexpr int SPLIT = 128, WARPS = SPLIT / 32;

__device__ __forceinline__ bool inside(int sequence, int keys, int sequences, int capacity, int splits) {
  return sequence >= 0 && sequence < sequences && keys >= 0 && keys <= capacity && (keys - 1) / SPLIT < splits;
}

__device__ __forceinline__ float score(
    const void* qkv, size_t q, int element, const void* K, size_t key, int cache_element, int D, float scale) {
  float dot = 0.f;
  for (int d = 0; d < D; d++) dot = fmaf(load(qkv, q + d, element), load(K, key + d, cache_element), dot);
  return dot * scale;
}

// Grid (H, R), D threads rounded up to whole warps.
// qkv [R, 3C] and y [R, C] of `element`; K, V [S, H, capacity, D] of `cache_element`; sequence, keys [R]; lse [R, H]
extern "C" __global__ void __launch_bounds__(128) attention_decode_v0_any(
    const void* qkv, const void* K, const void* V, const int* sequence,
    const int* keys, void* y, float* lse, int splits, int element, int cache_element,
    int D, int sequences, int capacity, float scale) {
  wait_for_previous();
  const int h = blockIdx.x, H = gridDim.x, r = blockIdx.y, d = threadIdx.x, n = keys[r], s = sequence[r];
  if (d >= D) return;
  const size_t row = (size_t)r * H + h;
  float out = NAN, log_sum = NAN;
  if (n == 0) {
    out = 0.f, log_sum = -INFINITY;
  } else if (inside(s, n, sequences, capacity, splits)) {
    const size_t q = (size_t)r * 3 * H * D + h * D, first = ((size_t)s * H + h) * capacity * D;
    float m = -INFINITY, l = 0.f, o = 0.f;
    for (int key = 0; key < n; key++) {
      m = fmaxf(m, score(qkv, q, element, K, first + (size_t)key * D, cache_element, D, scale));
    }
    for (int key = 0; key < n; key++) {
      const size_t at = first + (size_t)key * D;
      const float p = expf(score(qkv, q, element, K, at, cache_element, D, scale) - m);
      l += p;
      o = fmaf(p, load(V, at + d, cache_element), o);
    }
    out = o / l, log_sum = m + logf(l);
  }
  store(y, row * D + d, element, out);
  if (d == 0) lse[row] = log_sum;
}
EXPORT_KERNEL(attention_decode_v0_any)

// Of some keys: the largest q.k (without scale), the sum of their weights, and one element of their unnormalised O.
struct Joined {
  float m, l, o;
};

// The keys of this block's split; thread d < D has element d of O.
template <class T, int CH>
__device__ __forceinline__ Joined decode_split(
    const void* qkv,       // [R, 3C]
    const T* K,            // [keys, D] of this sequence and head
    const T* V,            // [keys, D]
    size_t q_index, int element, int keys, int D, float scale_log2) {
  constexpr int E = per16<T>, U = 8 / CH;
  DYN_SMEM(smem);
  float* O = reinterpret_cast<float*>(smem);  // [WARPS, D], m [WARPS], l [WARPS]
  float *sm = O + WARPS * D, *sl = sm + WARPS;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, i = lane & 7;
  const int first = blockIdx.x * SPLIT + 32 * warp, valid = keys - first;
  if (valid > 0) {
    K += (size_t)first * D, V += (size_t)first * D;
    float q[CH * E];
    load_q<T, CH>(qkv, q_index, element, D, q);
    const float s = score_keys<T, CH>(q, K, valid, D);
    uint4 v[U][CH];  // the first rows of V are on their way while the scores meet
    load_keys<T, CH, U>(V, 0, valid, D, v);
    const bool mine = lane_key() < valid;
    const float m = warp_max(mine ? s : -INFINITY);
    const float p = mine ? exp2_approx((s - m) * scale_log2) : 0.f;
    const float l = warp_sum(p);
    float o[CH * E];
#pragma unroll
    for (int e = 0; e < CH * E; e++) o[e] = 0.f;
#pragma unroll
    for (int step = 0; step < 8; step += U) {
      if (step > 0) load_keys<T, CH, U>(V, step, valid, D, v);
#pragma unroll
      for (int u = 0; u < U; u++) {
        const float pu = __shfl_sync(FULL_WARP, p, (lane & ~7) | (step + u));
#pragma unroll
        for (int j = 0; j < CH; j++) {
          float x[E];
          unpack<T, E>(&v[u][j], x);
#pragma unroll
          for (int e = 0; e < E; e++) o[j * E + e] = fmaf(pu, x[e], o[j * E + e]);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < CH * E; e++) {
      o[e] += __shfl_xor_sync(FULL_WARP, o[e], 8);
      o[e] += __shfl_xor_sync(FULL_WARP, o[e], 16);
    }
    if (lane < 8) {
#pragma unroll
      for (int j = 0; j < CH; j++) {
        const int d = (i + 8 * j) * E;
        if (d < D) {
#pragma unroll
          for (int e = 0; e < E; e++) O[warp * D + d + e] = o[j * E + e];
        }
      }
    }
    if (lane == 0) sm[warp] = m, sl[warp] = l;
  }
  __syncthreads();
  const int warps = min(WARPS, (keys - (int)blockIdx.x * SPLIT + 31) / 32);
  float m = sm[0], l = 0.f, o = 0.f;
  for (int w = 1; w < warps; w++) m = fmaxf(m, sm[w]);
  const int d = threadIdx.x;
  for (int w = 0; w < warps; w++) {
    const float weight = exp2_approx((sm[w] - m) * scale_log2);
    l = fmaf(weight, sl[w], l);
    if (d < D) o = fmaf(weight, O[w * D + d], o);
  }
  return {m, l, o};
}

// True in every thread of the block that comes here last of so many; it then sees what the others wrote before. Leaves the
// count at 0 for the next launch. `to_come` is in shared memory.
__device__ __forceinline__ bool last_of(int blocks, unsigned* arrived, int* to_come) {
  __syncthreads();  // all of the block have written what others shall see, and read what lies at `to_come`
  if (threadIdx.x == 0) {
    __threadfence();
    *to_come = blocks - 1 - (int)atomicAdd(arrived, 1u);
    if (*to_come == 0) *arrived = 0;
    __threadfence();
  }
  __syncthreads();  // it is known
  return *to_come == 0;
}

// Grid (splits, H, R), 128 threads, (D + 2) 16 bytes of shared memory. y = sum w O / sum w l over the splits, w = exp(scale (m -
// max m)); lse = scale max m + log(sum w l).
// qkv [R, 3C] and y [R, C] of `element`; K, V [S, H, capacity, D]; sequence, keys [R]; lse [R, H]; between blocks: partial
// [R, H, splits, D], ml [R, H, splits], arrived [R, H], which is 0 before and after
template <class T>
__device__ __forceinline__ void decode(
    const void* qkv, const T* K, const T* V, const int* sequence,
    const int* keys, float* partial, float2* ml, unsigned* arrived, void* y, float* lse,
    int element, int D, int sequences, int capacity, float scale) {
  wait_for_previous();
  const int splits = gridDim.x, split = blockIdx.x, h = blockIdx.y, H = gridDim.y, r = blockIdx.z, d = threadIdx.x;
  const int n = keys[r], s = sequence[r];
  const size_t row = (size_t)r * H + h;
  Joined all = {0.f, NAN, NAN};
  if (n == 0 || !inside(s, n, sequences, capacity, splits)) {
    if (split > 0) return;
    if (n == 0) all = {-INFINITY, 1.f, 0.f};
  } else {
    const int used = (n - 1) / SPLIT + 1;  // of a row inside the cache alone: another's keys may be any number
    if (split >= used) return;
    const size_t q_index = (size_t)r * 3 * H * D + h * D, base = ((size_t)s * H + h) * capacity * D;
    const float scale_log2 = scale * LOG2E;
    constexpr int LINE = 8 * per16<T>;  // elements that a group of eight lanes loads at once
    if (D <= LINE) {
      all = decode_split<T, 1>(qkv, K + base, V + base, q_index, element, n, D, scale_log2);
    } else if (D <= 2 * LINE) {
      all = decode_split<T, 2>(qkv, K + base, V + base, q_index, element, n, D, scale_log2);
    } else if constexpr (4 * LINE <= 128) {
      all = decode_split<T, 4>(qkv, K + base, V + base, q_index, element, n, D, scale_log2);
    }
    if (used > 1) {
      partial += row * splits * D, ml += row * splits;
      if (d < D) partial[(size_t)split * D + d] = all.o;
      if (d == 0) ml[split] = make_float2(all.m, all.l);
      DYN_SMEM(smem);
      if (!last_of(used, arrived + row, reinterpret_cast<int*>(smem) + WARPS * D)) return;  // where the maxima lay
      all = {ml[0].x, 0.f, 0.f};
      for (int i = 1; i < used; i++) all.m = fmaxf(all.m, ml[i].x);
      for (int i = 0; i < used; i++) {
        const float weight = exp2_approx((ml[i].x - all.m) * scale_log2);
        all.l = fmaf(weight, ml[i].y, all.l);
        if (d < D) all.o = fmaf(weight, partial[(size_t)i * D + d], all.o);
      }
    }
  }
  if (d < D) store(y, row * D + d, element, all.o / all.l);
  if (d == 0) lse[row] = fmaf(all.m, scale, logf(all.l));
}

// blocks: how many shall fit a multiprocessor, as many as the registers allow without spilling.
#define DECODE(name, T, blocks)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(128, blocks) name(                                                                     \
      const void* qkv, const T* K, const T* V, const int* sequence,              \
      const int* keys, float* partial, float2* ml, unsigned* arrived, void* y, float* lse,    \
      int element, int D, int sequences, int capacity, float scale) {                                                                \
    decode<T>(qkv, K, V, sequence, keys, partial, ml, arrived, y, lse, element, D, sequences, capacity, scale);                      \
  }                                                                                                                                  \
  EXPORT_KERNEL(name)

DECODE(attention_decode_v1_f32, float, 2)
DECODE(attention_decode_v1_f16, __half, 3)
DECODE(attention_decode_v1_bf16, __nv_bfloat16, 3)
