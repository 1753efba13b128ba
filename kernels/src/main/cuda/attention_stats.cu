// Statistics of the rows of attention maps, without writing P: entropy, mean distance, and the k largest probabilities.
//
// One pass over the keys, since lse is known: with t = scale q.k - lse, p = exp(t),
//   entropy = -sum p t (nats); distance = sum p |position - key|; top k by q.k, equal ones by the lower key.
// A warp holds a row's list of the best, rank i in lane i; a key enters it by two votes and a shift by one lane.
//
// v0  One thread a row and head: the definition, written down; a key is sorted into the row's list where it lies.
//     One kernel for all elements. Limits: few threads, each with all keys of a row.
// v1  Idea: one block a row and head, its four warps taking 32 keys in turn; for few rows.
//     Limits: every row reads its keys again.
// v2  Idea: 64 rows and 64 keys at a time, scores through shared memory; K is read once per 64 rows.
//     Changed: a warp keeps the sums and lists of eight rows. Limits: as those of the map's v2.
// v3  Idea: scores by tensor cores; the next 64 keys are fetched by cp.async while these are counted.
//     Changed: Q stays in shared memory for all keys. Limits: as those of the map's v3.
// Gains: not yet measured.
//
// Outputs [heads, rows]; top [heads, rows, k], key -1 and probability 0 beyond the keys of a row. A head or segment outside
// the cache reads nothing and gets NaN and keys -1.
#include "attention_tile.cuh"

// A warp's list of keys by falling score: rank i in lane i.
struct TopList {
  float score;
  int key;

  __device__ __forceinline__ void clear() { score = -INFINITY, key = INT_MAX; }

  static __device__ __forceinline__ bool before(float a, int a_key, float b, int b_key) {
    return a > b || (a == b && a_key < b_key);
  }

  // Offers one key of each lane, where present; only the first k ranks matter.
  __device__ __forceinline__ void offer(float x, int x_key, bool present, int k) {
    const float last = __shfl_sync(FULL_WARP, score, k - 1);
    const int last_key = __shfl_sync(FULL_WARP, key, k - 1), lane = threadIdx.x & 31;
    unsigned todo = __ballot_sync(FULL_WARP, present && before(x, x_key, last, last_key));
    while (todo) {
      const int source = __ffs(todo) - 1;
      todo &= todo - 1;
      const float y = __shfl_sync(FULL_WARP, x, source);
      const int y_key = __shfl_sync(FULL_WARP, x_key, source);
      const int rank = __popc(__ballot_sync(FULL_WARP, before(score, key, y, y_key)));
      const float up = __shfl_up_sync(FULL_WARP, score, 1);
      const int up_key = __shfl_up_sync(FULL_WARP, key, 1);
      if (lane > rank) score = up, key = up_key;
      if (lane == rank) score = y, key = y_key;
    }
  }
};

// The sums of a row as one lane has them: its keys only.
struct RowSums {
  float entropy, distance;

  __device__ __forceinline__ void add(float dot, int key, int position, float scale, float lse) {
    const float t = fmaf(dot, scale, -lse), p = expf(t);
    entropy -= p > 0.f || t != t ? p * t : 0.f;  // p = 0 adds nothing, even where t is -infinity
    distance = fmaf(p, (float)abs(position - key), distance);
  }
};

#define STATS_PARAMETERS(T)                                                                                            \
  const void *__restrict__ qkv,            /* [R, 3C] of `element` */                                                  \
      const T *__restrict__ K,             /* [sequences, H, capacity, D] */                                           \
      const float *__restrict__ lse,       /* [R, H] */                                                                \
      const int4 *__restrict__ segments,   /* [segment_count] */                                                       \
      const int *__restrict__ heads,       /* [heads of the launch] */                                                 \
      float *__restrict__ entropy,         /* [heads, rows] */                                                         \
      float *__restrict__ distance,        /* [heads, rows] */                                                         \
      int *__restrict__ top_keys,          /* [heads, rows, k] */                                                      \
      float *__restrict__ top_p,           /* [heads, rows, k] */                                                      \
      int k, int segment_count, int element, int flags, int first_row, int rows, int H, int D, int sequences,          \
      int capacity, float scale

// Writes what a warp knows of a row; sums are of the whole row, in every lane.
__device__ __forceinline__ void write_row(
    float* entropy, float* distance, int* top_keys, float* top_p, size_t at, int k, float scale, float lse, bool good,
    const RowSums& sums, const TopList& top) {
  const int lane = threadIdx.x & 31;
  if (lane == 0) {
    entropy[at] = good ? sums.entropy : NAN;
    distance[at] = good ? sums.distance : NAN;
  }
  if (lane < k) {
    const bool filled = good && top.key != INT_MAX;
    top_keys[at * k + lane] = filled ? top.key : -1;
    top_p[at * k + lane] = filled ? expf(fmaf(top.score, scale, -lse)) : good ? 0.f : NAN;
  }
}

// Grid (ceil(rows / 128), heads), 128 threads.
extern "C" __global__ void __launch_bounds__(128, 4) attention_stats_v0_any(STATS_PARAMETERS(void), int cache_element) {
  const int h = heads[blockIdx.y], i = blockIdx.x * 128 + threadIdx.x, row = first_row + i;
  if (i >= rows) return;
  const int4 segment = segment_of(segments, segment_count, row);
  const bool good = h >= 0 && h < H && inside(segment, sequences, capacity);
  const int keys = good ? keys_of(segment, row, flags & CAUSAL) : 0, position = segment.w + row - segment.x;
  const float log_sum = good ? lse[(size_t)row * H + h] : NAN;
  const size_t at = (size_t)blockIdx.y * rows + i, q = (size_t)row * 3 * H * D + h * D;
  top_keys += at * k, top_p += at * k;  // the scores of the list, until all keys were seen
  RowSums sums{0.f, 0.f};
  int listed = 0;
  for (int key = 0; key < keys; key++) {
    const size_t first = (((size_t)segment.z * H + h) * capacity + key) * D;
    float dot = 0.f;
    for (int d = 0; d < D; d++) dot = fmaf(load(qkv, q + d, element), load(K, first + d, cache_element), dot);
    sums.add(dot, key, position, scale, log_sum);
    if (dot != dot) continue;  // NaN is no largest
    int rank = listed;
    while (rank > 0 && top_p[rank - 1] < dot) rank--;
    if (listed < k) listed++;
    for (int r = listed - 1; r > rank; r--) top_p[r] = top_p[r - 1], top_keys[r] = top_keys[r - 1];
    if (rank < k) top_p[rank] = dot, top_keys[rank] = key;
  }
  entropy[at] = good ? sums.entropy : NAN;
  distance[at] = good ? sums.distance : NAN;
  for (int r = 0; r < k; r++) {
    top_p[r] = r < listed ? expf(fmaf(top_p[r], scale, -log_sum)) : good ? 0.f : NAN;
    if (r >= listed) top_keys[r] = -1;
  }
}
EXPORT_KERNEL(attention_stats_v0_any)

template <class T, int CH>
__device__ __forceinline__ void scan_keys(
    const void* qkv, size_t q_index, int element, const T* K, int keys, int position, int D, int k, float scale,
    float lse, RowSums& sums, TopList& top) {
  float q[CH * per16<T>];
  load_q<T, CH>(qkv, q_index, element, D, q);
  for (int first = threadIdx.x & ~31; first < keys; first += 128) {
    const int valid = keys - first, key = first + lane_key();
    const float dot = score_keys<T, CH>(q, K + (size_t)first * D, valid, D);
    if (key < keys) sums.add(dot, key, position, scale, lse);
    top.offer(dot, key, key < keys, k);
  }
}

// Grid (rows, heads), 128 threads, 4 (2 + 2 * 32) * 4 bytes of shared memory.
template <class T> __device__ __forceinline__ void stats_rows(STATS_PARAMETERS(T)) {
  DYN_SMEM(smem);
  float* sums_of = reinterpret_cast<float*>(smem);              // [4 warps, 2]
  float* scores_of = sums_of + 8;                               // [4 warps, 32]
  int* keys_at = reinterpret_cast<int*>(scores_of + 128);       // [4 warps, 32]
  const int row = first_row + blockIdx.x, h = heads[blockIdx.y], warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int4 segment = segment_of(segments, segment_count, row);
  const bool good = h >= 0 && h < H && inside(segment, sequences, capacity);
  const float log_sum = good ? lse[(size_t)row * H + h] : 0.f;
  RowSums sums{0.f, 0.f};
  TopList top;
  top.clear();
  if (good) {
    constexpr int LINE = 8 * per16<T>;
    const int keys = keys_of(segment, row, flags & CAUSAL), position = segment.w + row - segment.x;
    const T* rows_of_k = K + ((size_t)segment.z * H + h) * capacity * D;
    const size_t q_index = (size_t)row * 3 * H * D + h * D;
    if (D <= LINE) {
      scan_keys<T, 1>(qkv, q_index, element, rows_of_k, keys, position, D, k, scale, log_sum, sums, top);
    } else if (D <= 2 * LINE) {
      scan_keys<T, 2>(qkv, q_index, element, rows_of_k, keys, position, D, k, scale, log_sum, sums, top);
    } else {
      scan_keys<T, 16 / per16<T>>(qkv, q_index, element, rows_of_k, keys, position, D, k, scale, log_sum, sums, top);
    }
  }
  sums.entropy = warp_sum(sums.entropy), sums.distance = warp_sum(sums.distance);
  if (lane == 0) sums_of[2 * warp] = sums.entropy, sums_of[2 * warp + 1] = sums.distance;
  scores_of[threadIdx.x] = top.score, keys_at[threadIdx.x] = top.key;
  __syncthreads();
  if (warp > 0) return;
  for (int w = 1; w < 4; w++) {
    sums.entropy += sums_of[2 * w], sums.distance += sums_of[2 * w + 1];
    const int key = keys_at[32 * w + lane];
    top.offer(scores_of[32 * w + lane], key, lane < k && key != INT_MAX, k);
  }
  const size_t at = (size_t)blockIdx.y * rows + blockIdx.x;
  write_row(entropy, distance, top_keys, top_p, at, k, scale, log_sum, good, sums, top);
}

// What a warp keeps of its eight rows of a tile.
struct WarpRows {
  static constexpr int EACH = Br / (TILE_THREADS / 32);
  RowSums sums[EACH];
  TopList top[EACH];
  float lse[EACH];

  __device__ __forceinline__ void clear(const RowTile& tile, const float* lse_of, int h, int H, bool good) {
    const int begin = (threadIdx.x >> 5) * EACH;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      sums[i] = RowSums{0.f, 0.f};
      top[i].clear();
      lse[i] = good && begin + i < tile.rows ? lse_of[(size_t)(tile.first + begin + i) * H + h] : 0.f;
    }
  }

  // Takes in the scores of the keys first .. first + Bc - 1, S [Br, S_STRIDE].
  __device__ __forceinline__ void take(const RowTile& tile, const float* S, int first, bool causal, int k, float scale) {
    const int begin = (threadIdx.x >> 5) * EACH, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (begin + i >= tile.rows) continue;
      const int row = tile.first + begin + i, keys = keys_of(tile.segment, row, causal);
      const int position = tile.segment.w + row - tile.segment.x;
#pragma unroll
      for (int c = 0; c < Bc; c += 32) {
        const int key = first + c + lane;
        const float dot = S[(begin + i) * S_STRIDE + c + lane];
        if (key < keys) sums[i].add(dot, key, position, scale, lse[i]);
        top[i].offer(dot, key, key < keys, k);
      }
    }
  }

  // at: index of the tile's first row in the outputs
  __device__ __forceinline__ void write(
      const RowTile& tile, float* entropy, float* distance, int* top_keys, float* top_p, size_t at, int k, float scale,
      bool good) {
    const int begin = (threadIdx.x >> 5) * EACH;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (begin + i >= tile.rows) continue;
      sums[i].entropy = warp_sum(sums[i].entropy), sums[i].distance = warp_sum(sums[i].distance);
      write_row(entropy, distance, top_keys, top_p, at + begin + i, k, scale, lse[i], good, sums[i], top[i]);
    }
  }
};

// Grid (ceil(rows / 64) + segment_count, heads), 256 threads; shared memory for S [Br, S_STRIDE] f32, and with TENSOR besides
// for Q and K [2, 64, tile_stride(D)].
template <class T, bool TENSOR = false> __device__ __forceinline__ void stats_tile(STATS_PARAMETERS(T)) {
  DYN_SMEM(smem);
  float* S = reinterpret_cast<float*>(smem);
  const RowTile tile = row_tile(segments, segment_count, first_row, rows, blockIdx.x);
  if (tile.rows == 0) return;
  const int h = heads[blockIdx.y];
  const bool causal = flags & CAUSAL, good = h >= 0 && h < H && inside(tile.segment, sequences, capacity);
  const int most = good ? keys_of(tile.segment, tile.first + tile.rows - 1, causal) : 0;
  const size_t q_stride = (size_t)3 * H * D, q_index = tile.first * q_stride + h * D;
  K += good ? ((size_t)tile.segment.z * H + h) * capacity * D : 0;
  WarpRows mine;
  mine.clear(tile, lse, h, H, good);
  if constexpr (TENSOR) {
    T *sQ = reinterpret_cast<T*>(S + Br * S_STRIDE), *sK = sQ + Br * tile_stride(D);
    if (most > 0) {
      copy_tile<T>(static_cast<const T*>(qkv) + q_index, q_stride, tile.rows, D, sQ);
      copy_tile<T>(K, D, most, D, sK);
    }
    for (int first = 0; first < most; first += Bc) {
      cp_async_wait<0>();
      __syncthreads();
      float acc[4][4];
      multiply_tile<T>(sQ, sK, D, acc);
      write_scores(acc, S);
      __syncthreads();  // S is whole, and K may be overwritten: the next keys come while these are counted
      const int next = first + Bc;
      if (next < most) copy_tile<T>(K + (size_t)next * D, D, most - next, D, sK);
      mine.take(tile, S, first, causal, k, scale);
    }
  } else {
    for (int first = 0; first < most; first += Bc) {
      score_tile<T>(qkv, q_index, q_stride, element, K + (size_t)first * D, tile.rows, most - first, D, S);
      mine.take(tile, S, first, causal, k, scale);
    }
  }
  const size_t at = (size_t)blockIdx.y * rows + tile.first - first_row;
  mine.write(tile, entropy, distance, top_keys, top_p, at, k, scale, good);
}

#define STATS(name, T, body, bounds)                                                                                   \
  extern "C" __global__ void __launch_bounds__ bounds name(STATS_PARAMETERS(T)) {                                      \
    body(qkv, K, lse, segments, heads, entropy, distance, top_keys, top_p, k, segment_count, element, flags,        \
            first_row, rows, H, D, sequences, capacity, scale);                                                        \
  }                                                                                                                    \
  EXPORT_KERNEL(name)

STATS(attention_stats_v1_f32, float, stats_rows<float>, (128, 4))
STATS(attention_stats_v1_f16, __half, stats_rows<__half>, (128, 4))
STATS(attention_stats_v1_bf16, __nv_bfloat16, stats_rows<__nv_bfloat16>, (128, 4))
STATS(attention_stats_v2_f32, float, stats_tile<float>, (TILE_THREADS, 1))
STATS(attention_stats_v2_f16, __half, stats_tile<__half>, (TILE_THREADS, 1))
STATS(attention_stats_v2_bf16, __nv_bfloat16, stats_tile<__nv_bfloat16>, (TILE_THREADS, 1))
STATS(attention_stats_v3_f16, __half, (stats_tile<__half, true>), (TILE_THREADS, 2))
STATS(attention_stats_v3_bf16, __nv_bfloat16, (stats_tile<__nv_bfloat16, true>), (TILE_THREADS, 2))
