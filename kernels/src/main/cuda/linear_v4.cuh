// Linear maps, version 4: tensor cores. See linear.cu.
//
// From v3: products by mma.sync, fed by ldmatrix from tiles that cp.async brings in while the tile
// before is multiplied. A row of a tile is 128 bytes, 8 chunks of 16, whatever the element (64 f16 or
// bf16, 32 f32), and chunk c of row r lies at place c ^ (r % 8): the 8 rows of an ldmatrix, and the 8
// chunks of a row that cp.async writes, then fall on 8 different groups of 4 banks.
// A warp makes 64 x 32 outputs: 6 ldmatrix for 16 mma.
//
// f32 is 3xTF32 (Ootomo and Yokota, arXiv 2203.03341): each operand is split in two tf32, hi + lo, and
// lo.hi + hi.lo + hi.hi are added, the small ones first. lo.lo, below 2^-22 of the product, is left out.
//
// What the sums lose. Tensor cores add a few exact products to the accumulator at a time, and cut off
// what lies below the last digit of the largest of them, and then of the sum (Fasi, Higham, Mikaitis and
// Pranesh, PeerJ Computer Science 7:e330): 1.5 units in the last place for each product at most, towards
// zero. Over all of k that would be 4.5 in 2^-23 of sum |x w|, 4e-4 for 768 of k and one sign. So every
// 8 of k have accumulators of their own, which ordinary f32 additions join to the sum: 36 2^-23 of
// sum |x w| for the products, and one rounding to nearest for every 8 of k.
// f16 and bf16 leave it at 1.5 in 2^-23 sum |x w|, 5e-4 for 3,072 of k and all of one sign: the
// operands' own rounding, 2^-11 or 2^-8 of each product, is as large or larger.
//
// With f32 x and f16 or bf16 W, x is rounded to W's element on its way into shared memory, a quarter of
// a tile at a time through registers, between the multiplications of the tile before.
//
// Limits: rows are multiples of 16 bytes (`in` a multiple of 8 for f16 and bf16, of 4 for f32). f32 and
// bf16 need compute capability 8.0. f32: an infinite operand, or one above the largest tf32, gives NaN.
// Gain: not yet measured.
#pragma once
#include "epilogue.cuh"

// ---- A tile of sums in shared memory, from which it leaves in rows: whole lines to memory, and the
// epilogue's code once instead of once for every sum of a thread.

// 72 = 64 + 8: the fragment rows g = 0..3 of a half warp's 8-byte stores lie 8 banks apart.
constexpr int SUMS_PITCH = 72;

template <int ROWS, int COLS, int THREADS, class Epilogue>
__device__ __forceinline__ void put_tile(
    const float* tile,  // [ROWS, SUMS_PITCH]
    int row0, int rows, int col0, const Epilogue& epilogue) {
  static_assert(COLS <= SUMS_PITCH, "a row of the tile");
#pragma unroll 1
  for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
    const int r = i / (COLS / 4), c = i % (COLS / 4) * 4;
    const float4 v = lds128_f32(tile + r * SUMS_PITCH + c);
    float sums[4] = {v.x, v.y, v.z, v.w};
    if (row0 + r < rows) put4(epilogue, row0 + r, col0 + c, sums);
  }
}

// ---- Multiplication of fragments: acc [16, 8] += a [16, k] . b [8, k]^T, k = 32 bytes.

template <class E>  // __half, __nv_bfloat16
struct Fragments {
  static __device__ __forceinline__ void multiply(
      float (&acc)[4][4][4], const unsigned (&a)[4][4], const unsigned (&b)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) mma(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], E{});
  }
};

// x = hi + lo + an error below 2^-22 |x|
__device__ __forceinline__ void split_tf32(unsigned x, unsigned& hi, unsigned& lo) {
  hi = to_tf32(__uint_as_float(x));
  lo = to_tf32(__uint_as_float(x) - __uint_as_float(hi));
}

template <>
struct Fragments<float> {
  static __device__ __forceinline__ void multiply(
      float (&acc)[4][4][4], const unsigned (&a)[4][4], const unsigned (&b)[2][4]) {
    unsigned bHi[2][4], bLo[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++) split_tf32(b[i / 4][i % 4], bHi[i / 4][i % 4], bLo[i / 4][i % 4]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      unsigned aHi[4], aLo[4];
#pragma unroll
      for (int e = 0; e < 4; e++) split_tf32(a[i][e], aHi[e], aLo[e]);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int p = j / 2, q = j % 2 * 2;
        float sum[4] = {};
        mma_m16n8k8_tf32(sum, aLo, bHi[p][q], bHi[p][q + 1]);
        mma_m16n8k8_tf32(sum, aHi, bLo[p][q], bLo[p][q + 1]);
        mma_m16n8k8_tf32(sum, aHi, bHi[p][q], bHi[p][q + 1]);
#pragma unroll
        for (int e = 0; e < 4; e++) acc[i][j][e] += sum[e];
      }
    }
  }
};

// ---- Tiles.

constexpr int V4_ROWS = 128, V4_COLS = 64, V4_THREADS = 128;  // warps: 2 x 2, each 64 x 32 outputs
constexpr int V4_ROW_BYTES = 128, V4_CHUNKS = 8, V4_STEPS = 4;  // a step of k is 32 bytes
constexpr int V4_STAGE = (V4_ROWS + V4_COLS) * V4_ROW_BYTES;    // bytes

// Byte offset of chunk c of row r.
__device__ __forceinline__ int chunk_at(int r, int c) {
  return r * V4_ROW_BYTES + ((c ^ (r & 7)) << 4);
}

// Rows row0.. of `from` [count, in], k0.. of each; zero beyond the last row and the end of rows.
template <int ROWS, class E>
__device__ __forceinline__ void stage_async(
    unsigned char* tile, const E* from, int row0, int count, int k0, int in) {
  constexpr int BAND = V4_THREADS / V4_CHUNKS;  // rows that the block brings at once, a multiple of 8
  const int r = threadIdx.x / V4_CHUNKS, c = threadIdx.x % V4_CHUNKS, k = k0 + c * per16<E>;
  unsigned char* to = tile + chunk_at(r, c);
  size_t at = (size_t)(row0 + r) * in + k;
#pragma unroll
  for (int i = 0; i < ROWS / BAND; i++) {
    const bool inside = row0 + r + i * BAND < count && k < in;
    cp_async16(to + i * BAND * V4_ROW_BYTES, from + (inside ? at : 0), inside);
    at += (size_t)BAND * in;
  }
}

// A quarter of a tile of f32 rows on its way to narrower ones: 2 chunks of 8 elements a thread, 32 rows
// a block.
template <class E>
struct Narrowing {
  float v[2][8];

  __device__ __forceinline__ void fetch(
      const float* x, int quarter, int row0, int count, int k0, int in) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int piece = threadIdx.x + (quarter * 2 + i) * V4_THREADS;
      const int r = piece / V4_CHUNKS, k = k0 + piece % V4_CHUNKS * 8;
      if (row0 + r < count && k < in) {
        load_floats(x + (size_t)(row0 + r) * in + k, v[i]);
      } else {
#pragma unroll
        for (int j = 0; j < 8; j++) v[i][j] = 0.0f;
      }
    }
  }

  __device__ __forceinline__ void settle(unsigned char* tile, int quarter) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int piece = threadIdx.x + (quarter * 2 + i) * V4_THREADS;
      const uint4 packed = make_uint4(
          pack(v[i][0], v[i][1], E{}), pack(v[i][2], v[i][3], E{}),
          pack(v[i][4], v[i][5], E{}), pack(v[i][6], v[i][7], E{}));
      sts128(tile + chunk_at(piece / V4_CHUNKS, piece % V4_CHUNKS), packed);
    }
  }
};

// acc += one step of k of the warp's rows of x, from wm on, and of W, from wn on. The 4 matrices of an
// ldmatrix are, for x, rows 0-7 and 8-15 of the chunk 2 step, then of the next; for W, both chunks of
// rows 0-7, then of 8-15: the fragments of two columns of mma.
template <class E>
__device__ __forceinline__ void multiply_step(
    float (&acc)[4][4][4], const unsigned char* xs, const unsigned char* ws, int step, int wm, int wn) {
  const int lane = threadIdx.x & 31;
  unsigned a[4][4], b[2][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    ldmatrix_x4(a[i], xs + chunk_at(wm + i * 16 + (lane & 15), step * 2 + (lane >> 4)));
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int r = wn + j * 16 + (lane & 7) + ((lane >> 4) << 3);
    ldmatrix_x4(b[j], ws + chunk_at(r, step * 2 + ((lane >> 3) & 1)));
  }
  Fragments<E>::multiply(acc, a, b);
}

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <class W, class X, class Epilogue>
__device__ __forceinline__ void linear_v4(
    const X* __restrict__ x,  // [R, in]
    const W* __restrict__ w,  // [out, in]
    int rows, int in, const Epilogue& epilogue) {
  constexpr bool NARROW = !same<W, X>;
  constexpr int K = V4_ROW_BYTES / (int)sizeof(W);
  [[maybe_unused]] constexpr int UNROLL = same<W, float> ? 1 : V4_STEPS;  // the split operands of one step fill the registers
  DYN_SMEM(smem);  // two stages, each x [V4_ROWS, 128 bytes], W [V4_COLS, 128 bytes]; then the sums
  const int row0 = blockIdx.y * V4_ROWS, col0 = blockIdx.x * V4_COLS;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int wm = warp / 2 * 64, wn = warp % 2 * 32;
  auto bring = [&](int tile) {
    unsigned char* stage = smem + (tile & 1) * V4_STAGE;
    if constexpr (!NARROW) stage_async<V4_ROWS>(stage, x, row0, rows, tile * K, in);
    stage_async<V4_COLS>(stage + V4_ROWS * V4_ROW_BYTES, w, col0, epilogue.outputs, tile * K, in);
    cp_async_commit();
  };
  bring(0);
  if constexpr (NARROW) {
#pragma unroll
    for (int q = 0; q < 4; q++) {
      Narrowing<W> part;
      part.fetch(x, q, row0, rows, 0, in);
      part.settle(smem, q);
    }
  }
  float acc[4][4][4] = {};
  const int tiles = (in + K - 1) / K;
  for (int tile = 0; tile < tiles; tile++) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is there, and nobody still reads the one before
    const bool more = tile + 1 < tiles;
    if (more) bring(tile + 1);
    unsigned char* xs = smem + (tile & 1) * V4_STAGE;
    unsigned char* next = smem + (~tile & 1) * V4_STAGE;
#pragma unroll UNROLL
    for (int step = 0; step < V4_STEPS; step++) {
      if constexpr (NARROW) {
        Narrowing<W> part;
        if (more) part.fetch(x, step, row0, rows, (tile + 1) * K, in);
        multiply_step<W>(acc, xs, xs + V4_ROWS * V4_ROW_BYTES, step, wm, wn);
        if (more) part.settle(next, step);
      } else {
        multiply_step<W>(acc, xs, xs + V4_ROWS * V4_ROW_BYTES, step, wm, wn);
      }
    }
  }
  __syncthreads();
  float* sums = reinterpret_cast<float*>(smem);  // [V4_ROWS, SUMS_PITCH]
  const int g = lane >> 2, t = lane & 3;         // a lane's sums: rows g and g + 8, columns 2t and 2t + 1
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float* p = sums + (wm + i * 16 + g) * SUMS_PITCH + wn + j * 8 + t * 2;
      *reinterpret_cast<float2*>(p) = make_float2(acc[i][j][0], acc[i][j][1]);
      *reinterpret_cast<float2*>(p + 8 * SUMS_PITCH) = make_float2(acc[i][j][2], acc[i][j][3]);
    }
  __syncthreads();
  put_tile<V4_ROWS, V4_COLS, V4_THREADS>(sums, row0, rows, col0, epilogue);
}
