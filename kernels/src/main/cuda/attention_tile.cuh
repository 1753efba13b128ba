// What the map and statistics kernels share: which rows of the batch they look at, and tiles of raw scores q.k.
#pragma once
#include "attention_rows.cuh"

// Flags of a launch.
enum { CAUSAL = 1, PACKED = 2, SCORES = 4, HALF = 8 };

constexpr int Br = 64, Bc = 64, TILE_THREADS = 256;
constexpr int S_STRIDE = Bc + 8;  // of a tile of scores: eight rows of a tensor-core fragment fall on different banks

// A run of rows of one sequence: {first row, rows, sequence, position of the first row}.
// A row at position p attends to the keys 0 .. p (causal) or to all keys of its sequence, those up to its segment's last.
__device__ __forceinline__ int keys_of(const int4& segment, int row, bool causal) {
  return segment.w + (causal ? row - segment.x + 1 : segment.y);
}

__device__ __forceinline__ bool inside(const int4& segment, int sequences, int capacity) {
  return segment.z >= 0 && segment.z < sequences && segment.w >= 0 && segment.y <= capacity - segment.w;
}

// The segment that holds a row; of 0 rows if none does.
__device__ __forceinline__ int4 segment_of(const int4* __restrict__ segments, int count, int row) {
  for (int s = 0; s < count; s++) {
    const int4 segment = segments[s];
    if (row >= segment.x && row - segment.x < segment.y) return segment;
  }
  return make_int4(0, 0, -1, 0);
}

__device__ __forceinline__ size_t triangle(int n) { return (size_t)n * (n + 1) / 2; }

// Entries of the causal-packed rows of a range that lie before a row: the row of position p has p + 1.
__device__ __forceinline__ size_t packed_offset(const int4* __restrict__ segments, int count, int first_row, int row) {
  size_t offset = 0;
  for (int s = 0; s < count; s++) {
    const int4 segment = segments[s];
    const int from = max(segment.x, first_row), to = min(segment.x + segment.y, row);
    if (from < to) offset += triangle(to - segment.x + segment.w) - triangle(from - segment.x + segment.w);
  }
  return offset;
}

// Up to Br rows of one segment: those of the range first_row .. first_row + rows - 1, in order, no tile over two segments.
struct RowTile {
  int4 segment;
  int first, rows;  // rows = 0: no such tile
};

__device__ __forceinline__ RowTile row_tile(
    const int4* __restrict__ segments, int count, int first_row, int rows, int tile) {
  for (int s = 0; s < count; s++) {
    const int4 segment = segments[s];
    const int from = max(segment.x, first_row), to = min(segment.x + segment.y, first_row + rows);
    const int tiles = to > from ? (to - from + Br - 1) / Br : 0;
    if (tile < tiles) return RowTile{segment, from + tile * Br, min(Br, to - from - tile * Br)};
    tile -= tiles;
  }
  return RowTile{make_int4(0, 0, -1, 0), 0, 0};
}

// S = Q K^T of Br rows and Bc keys by fused multiply-adds in f32; zero where there is no such row or key.
// 256 threads, each 4 rows x 4 keys. Chunks of 32 of D pass through shared memory transposed, element (d, row) at
// column row ^ 4 (d / 4 mod 8) of its line, so that neither the transposing stores nor the 16-byte loads conflict.
// Begins and ends with a barrier: shared memory may be in use before, and S is readable after.
// qkv [R, 3C], q_index of the first row; K [keys, D] from the first key; S [Br, S_STRIDE] at the start of shared, where Q and K
// were [2, 32, 64]
template <class T>
__device__ __forceinline__ void score_tile(
    const void* __restrict__ qkv, size_t q_index, size_t q_stride, int element, const T* __restrict__ K, int rows,
    int keys, int D, float* shared) {
  constexpr int STEP = 32;
  float *sQ = shared, *sK = shared + STEP * Br;
  const int thread = threadIdx.x, tx = thread & 15, ty = thread >> 4;
  float acc[4][4] = {};
  for (int d0 = 0; d0 < D; d0 += STEP) {
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
      const int row = pass * 32 + (thread >> 3), c = (thread & 7) * 4, d = d0 + c;
      const float4 none = make_float4(0.f, 0.f, 0.f, 0.f);
      const float4 q = row < rows && d < D ? load4(qkv, q_index + row * q_stride + d, element) : none;
      const float qs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int e = 0; e < 4; e++) sQ[(c + e) * Br + (row ^ c)] = qs[e];
      const float4 k = row < keys && d < D ? load4(K + (size_t)row * D + d) : none;
      const float ks[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
      for (int e = 0; e < 4; e++) sK[(c + e) * Bc + (row ^ c)] = ks[e];
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < STEP; d++) {
      const float4 q = lds128_f32(sQ + d * Br + ((ty * 4) ^ (d & 28)));
      const float4 k = lds128_f32(sK + d * Bc + ((tx * 4) ^ (d & 28)));
      const float qs[4] = {q.x, q.y, q.z, q.w}, ks[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
      for (int a = 0; a < 4; a++)
#pragma unroll
        for (int b = 0; b < 4; b++) acc[a][b] = fmaf(qs[a], ks[b], acc[a][b]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int a = 0; a < 4; a++)
    sts128(shared + (ty * 4 + a) * S_STRIDE + tx * 4, make_float4(acc[a][0], acc[a][1], acc[a][2], acc[a][3]));
  __syncthreads();
}

// ---- the same by tensor cores, where q and the cache are both f16 or both bf16: products are exact, sums f32

// Elements from one row of a tile in shared memory to the next: D in whole steps of 16, and 16 bytes more, an odd number of
// chunks, so that the eight rows of an ldmatrix fall on different banks.
__device__ __forceinline__ int tile_stride(int D) { return (D + 15) / 16 * 16 + 8; }

// Starts copying up to 64 rows of D into shared [64, tile_stride(D)]; zero beyond the rows and beyond D. One group of cp.async.
// rows [valid, D], row_stride elements apart
template <class T>
__device__ __forceinline__ void copy_tile(const T* __restrict__ rows, size_t row_stride, int valid, int D, T* shared) {
  const int stride = tile_stride(D);
  for (int row = threadIdx.x >> 3; row < 64; row += TILE_THREADS / 8) {
    for (int d = (threadIdx.x & 7) * 8; d < stride - 8; d += 64) {
      const bool present = row < valid && d < D;
      cp_async16(shared + row * stride + d, present ? rows + row * row_stride + d : rows, present);
    }
  }
  cp_async_commit();
}

// This warp's 16 rows x 32 keys of Q K^T: rows 16 (warp / 2), keys 32 (warp % 2); acc [4 times 8 keys] as the fragments of mma.
// Q, K [64, tile_stride(D)] in shared memory
template <class T>
__device__ __forceinline__ void multiply_tile(const T* Q, const T* K, int D, float (&acc)[4][4]) {
  const int stride = tile_stride(D), warp = threadIdx.x >> 5, matrix = (threadIdx.x >> 3) & 3, line = threadIdx.x & 7;
  const T* q = Q + (16 * (warp >> 1) + 8 * (matrix & 1) + line) * stride + 8 * (matrix >> 1);
  const T* k = K + (32 * (warp & 1) + 8 * (matrix >> 1) + line) * stride + 8 * (matrix & 1);
#pragma unroll
  for (int n = 0; n < 4; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.f;
#pragma unroll 2
  for (int d = 0; d < stride - 8; d += 16) {
    unsigned a[4], b[2][4];
    ldmatrix_x4(a, q + d);
    ldmatrix_x4(b[0], k + d);
    ldmatrix_x4(b[1], k + 16 * stride + d);
#pragma unroll
    for (int n = 0; n < 4; n++) mma(acc[n], a, b[n >> 1][2 * (n & 1)], b[n >> 1][2 * (n & 1) + 1], T{});
  }
}

// Puts the warp's fragments into S [Br, S_STRIDE].
__device__ __forceinline__ void write_scores(const float (&acc)[4][4], float* S) {
  const int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  float* s = S + (16 * (warp >> 1) + g) * S_STRIDE + 32 * (warp & 1) + 2 * t;
#pragma unroll
  for (int n = 0; n < 4; n++) {
    *reinterpret_cast<float2*>(s + 8 * n) = make_float2(acc[n][0], acc[n][1]);
    *reinterpret_cast<float2*>(s + 8 * S_STRIDE + 8 * n) = make_float2(acc[n][2], acc[n][3]);
  }
}
