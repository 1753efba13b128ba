// Attention maps: P = exp(scale q.k - lse), or the scores scale q.k, of chosen heads and rows.
//
// The attention kernels never write P; they leave lse [R, H], and these rebuild from it what somebody asked to see.
//
// v0  One thread a cell: the definition, written down. One kernel for all elements.
//     Limits: every cell reads its q and its k again.
// v1  Idea: one warp a row and 32 keys, as in decoding: nothing shared, no barrier; for few rows.
//     Limits: every row reads its keys again, so T rows read K T times (from the L2 cache at best).
// v2  Idea: tiles of 64 rows x 64 keys in shared memory; K is read once per 64 rows, and rows of P leave in whole lines.
//     Changed: the scores of a tile meet in shared memory; tiles above the diagonal compute nothing.
//     Limits: f32 multiply-adds, two bytes of shared memory read for each; a segment of few rows fills few of 64.
// v3  Idea: the tile by tensor cores, f16 or bf16 with f32 sums.
//     Changed: Q and K lie in shared memory as they are in global memory, whole rows, fetched by cp.async.
//     Limits: q and the cache must be of the same 16-bit element; sm_80. f32 has no such version: tf32 would cost 13 bits.
// Gains: not yet measured.
//
// Rows come as segments {first row, rows, sequence, first position} on the device, so that a graph may be replayed as
// positions move on. Two layouts, by flag:
//   dense [heads, rows, columns]: P is 0 and scores are -infinity where a row has no key; keys from `columns` on are left out;
//   PACKED (causal only): a row of position p has p + 1 entries, rows follow on each other, heads lie head_stride apart.
// A head or segment outside the cache reads nothing: dense gets NaN, packed rows are left as they are.
#include "attention_tile.cuh"

__device__ __forceinline__ void store_as(void* out, size_t i, float x, bool half) {
  if (half) {
    static_cast<__half*>(out)[i] = __float2half_rn(x);
  } else {
    static_cast<float*>(out)[i] = x;
  }
}

// What a map shows for q.k; masked where a row has no such key.
struct Cell {
  float scale;
  bool scores;
  __device__ __forceinline__ float of(float dot, float lse) const {
    // one rounding in the exponent: a large probability has a small exponent, however large both terms are
    return scores ? dot * scale : expf(fmaf(dot, scale, -lse));
  }
  __device__ __forceinline__ float masked() const { return scores ? -INFINITY : 0.f; }
};

template <class T, int CH>
__device__ __forceinline__ float row_score(
    const void* qkv, size_t q_index, int element, const T* K, int valid, int D) {
  float q[CH * per16<T>];
  load_q<T, CH>(qkv, q_index, element, D, q);
  return score_keys<T, CH>(q, K, valid, D);
}

#define MAP_PARAMETERS(T)                                                                                              \
  const void *__restrict__ qkv,            /* [R, 3C] of `element` */                                                  \
      const T *__restrict__ K,             /* [sequences, H, capacity, D] */                                           \
      const float *__restrict__ lse,       /* [R, H] */                                                                \
      const int4 *__restrict__ segments,   /* [segment_count] */                                                       \
      const int *__restrict__ heads,       /* [heads of the launch] */                                                 \
      void *__restrict__ out, long long head_stride, int segment_count, int element, int flags, int first_row,         \
      int rows, int columns, int H, int D, int sequences, int capacity, float scale

// Grid (ceil(columns / 128), heads, rows), 128 threads, no shared memory.
template <class T> __device__ __forceinline__ void map_rows(MAP_PARAMETERS(T)) {
  const int h = heads[blockIdx.y], row = first_row + blockIdx.z, first = blockIdx.x * 128 + (threadIdx.x & ~31);
  if ((int)blockIdx.z >= rows || first >= columns) return;
  const bool packed = flags & PACKED, half = flags & HALF;
  const Cell cell{scale, (flags & SCORES) != 0};
  const int4 segment = segment_of(segments, segment_count, row);
  const bool good = h >= 0 && h < H && inside(segment, sequences, capacity);
  const int keys = good ? keys_of(segment, row, flags & CAUSAL) : 0, valid = min(32, keys - first);
  if (packed && valid <= 0) return;
  float value = good ? cell.masked() : NAN;
  if (valid > 0) {
    constexpr int LINE = 8 * per16<T>;
    const T* k = K + (((size_t)segment.z * H + h) * capacity + first) * D;
    const size_t q_index = (size_t)row * 3 * H * D + h * D;
    float dot;
    if (D <= LINE) {
      dot = row_score<T, 1>(qkv, q_index, element, k, valid, D);
    } else if (D <= 2 * LINE) {
      dot = row_score<T, 2>(qkv, q_index, element, k, valid, D);
    } else {
      dot = row_score<T, 16 / per16<T>>(qkv, q_index, element, k, valid, D);
    }
    if (lane_key() < valid) value = cell.of(dot, cell.scores ? 0.f : lse[(size_t)row * H + h]);
  }
  const int key = first + lane_key();
  size_t i = (size_t)blockIdx.y * head_stride + key;
  if (packed) {
    const size_t offset = packed_offset(segments, segment_count, first_row, row);
    if (key < keys && offset + keys <= (size_t)head_stride) store_as(out, i + offset, value, half);
  } else if (key < columns) {
    store_as(out, i + (size_t)blockIdx.z * columns, value, half);
  }
}

// Grid (ceil(columns / 128), heads, rows), 128 threads.
extern "C" __global__ void __launch_bounds__(128) attention_map_v0_any(MAP_PARAMETERS(void), int cache_element) {
  const int h = heads[blockIdx.y], row = first_row + blockIdx.z, key = blockIdx.x * 128 + threadIdx.x;
  if ((int)blockIdx.z >= rows || key >= columns) return;
  const Cell cell{scale, (flags & SCORES) != 0};
  const int4 segment = segment_of(segments, segment_count, row);
  const bool good = h >= 0 && h < H && inside(segment, sequences, capacity);
  const int keys = good ? keys_of(segment, row, flags & CAUSAL) : 0;
  float value = good ? cell.masked() : NAN;
  if (key < keys) {
    const size_t q = (size_t)row * 3 * H * D + h * D, k = (((size_t)segment.z * H + h) * capacity + key) * D;
    float dot = 0.f;
    for (int d = 0; d < D; d++) dot = fmaf(load(qkv, q + d, element), load(K, k + d, cache_element), dot);
    value = cell.of(dot, cell.scores ? 0.f : lse[(size_t)row * H + h]);
  }
  size_t i = (size_t)blockIdx.y * head_stride + key;
  if (flags & PACKED) {
    const size_t offset = packed_offset(segments, segment_count, first_row, row);
    if (key >= keys || offset + keys > (size_t)head_stride) return;
    i += offset;
  } else {
    i += (size_t)blockIdx.z * columns;
  }
  store_as(out, i, value, flags & HALF);
}
EXPORT_KERNEL(attention_map_v0_any)

// S = Q K^T of a tile by tensor cores, with barriers as score_tile has them.
template <class T>
__device__ __forceinline__ void tensor_tile(
    const void* qkv, size_t q_index, size_t q_stride, const T* K, int rows, int keys, int D, unsigned char* smem) {
  T *sQ = reinterpret_cast<T*>(smem), *sK = sQ + Br * tile_stride(D);
  copy_tile<T>(static_cast<const T*>(qkv) + q_index, q_stride, rows, D, sQ);
  copy_tile<T>(K, D, keys, D, sK);
  cp_async_wait<0>();
  __syncthreads();
  float acc[4][4];
  multiply_tile<T>(sQ, sK, D, acc);
  __syncthreads();  // S takes the place of Q and K
  write_scores(acc, reinterpret_cast<float*>(smem));
  __syncthreads();
}

// Grid (ceil(columns / 64), ceil(rows / 64) + segment_count, heads), 256 threads; shared memory for S [Br, S_STRIDE] f32, and
// with TENSOR for Q and K [2, 64, tile_stride(D)], if that is more.
template <class T, bool TENSOR = false> __device__ __forceinline__ void map_tile(MAP_PARAMETERS(T)) {
  DYN_SMEM(smem);
  float* S = reinterpret_cast<float*>(smem);  // [Br, S_STRIDE]
  const RowTile tile = row_tile(segments, segment_count, first_row, rows, blockIdx.y);
  if (tile.rows == 0) return;
  const int h = heads[blockIdx.z], first = blockIdx.x * Bc;
  const bool packed = flags & PACKED, half = flags & HALF, causal = flags & CAUSAL;
  const Cell cell{scale, (flags & SCORES) != 0};
  const bool good = h >= 0 && h < H && inside(tile.segment, sequences, capacity);
  const int keys = good ? keys_of(tile.segment, tile.first + tile.rows - 1, causal) : 0;  // of the last row: the most
  if (packed && first >= keys) return;
  if (first < keys) {
    const T* k = K + (((size_t)tile.segment.z * H + h) * capacity + first) * D;
    const size_t q_stride = (size_t)3 * H * D;
    const size_t q_index = tile.first * q_stride + h * D;
    if constexpr (TENSOR) {
      tensor_tile<T>(qkv, q_index, q_stride, k, tile.rows, keys - first, D, smem);
    } else {
      score_tile<T>(qkv, q_index, q_stride, element, k, tile.rows, keys - first, D, S);
    }
  }
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  for (int i = warp; i < tile.rows; i += TILE_THREADS / 32) {
    const int row = tile.first + i, row_keys = good ? keys_of(tile.segment, row, causal) : 0;
    const float log_sum = good && !cell.scores ? lse[(size_t)row * H + h] : 0.f;
    size_t at = (size_t)blockIdx.z * head_stride;
    int end = columns;
    if (packed) {
      const size_t offset = packed_offset(segments, segment_count, first_row, row);
      at += offset;
      end = offset + row_keys <= (size_t)head_stride ? row_keys : 0;
    } else {
      at += (size_t)(row - first_row) * columns;
    }
#pragma unroll
    for (int c = 0; c < Bc; c += 32) {
      const int key = first + c + lane;
      if (key >= end) continue;
      const float value = key < row_keys ? cell.of(S[i * S_STRIDE + c + lane], log_sum) : good ? cell.masked() : NAN;
      store_as(out, at + key, value, half);
    }
  }
}

#define MAP(name, T, body, bounds)                                                                                     \
  extern "C" __global__ void __launch_bounds__ bounds name(MAP_PARAMETERS(T)) {                                       \
    body(qkv, K, lse, segments, heads, out, head_stride, segment_count, element, flags, first_row, rows, columns,   \
            H, D, sequences, capacity, scale);                                                                         \
  }                                                                                                                    \
  EXPORT_KERNEL(name)

MAP(attention_map_v1_f32, float, map_rows<float>, (128, 4))
MAP(attention_map_v1_f16, __half, map_rows<__half>, (128, 4))
MAP(attention_map_v1_bf16, __nv_bfloat16, map_rows<__nv_bfloat16>, (128, 4))
MAP(attention_map_v2_f32, float, map_tile<float>, (TILE_THREADS, 4))
MAP(attention_map_v2_f16, __half, map_tile<__half>, (TILE_THREADS, 4))
MAP(attention_map_v2_bf16, __nv_bfloat16, map_tile<__nv_bfloat16>, (TILE_THREADS, 4))
MAP(attention_map_v3_f16, __half, (map_tile<__half, true>), (TILE_THREADS, 3))
MAP(attention_map_v3_bf16, __nv_bfloat16, (map_tile<__nv_bfloat16, true>), (TILE_THREADS, 3))
