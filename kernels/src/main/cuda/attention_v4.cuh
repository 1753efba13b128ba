// Version 4: tiled flash attention on the tensor cores.
//
// Idea: both products are mma.sync m16n8k16. A warp owns 16 query rows, whose fragments of Q, S and O
//   never leave its registers: the accumulator layout of S is the operand layout of P. K and V
//   tiles of 64 keys come by cp.async into two buffers, the next one while this one is worked on,
//   with a single barrier a tile; they lie XOR-swizzled, so that ldmatrix meets no bank conflict.
// Changed from version 3: tensor cores instead of float units, copies behind arithmetic, P in
//   registers and rounded to the input's type. One exp2 with log2(e) folded into the scale takes
//   the place of exp, and only tiles on the diagonal or at the end are masked.
// Limits: f16 and bf16; a K or V fragment read from shared memory serves 16 rows only.
// D a multiple of 8 up to 128; one kernel for D up to 16, 32, 64, 80, 96, 128, the rest filled with
// zeros. Gain: not yet measured.
#pragma once
#include "attention_common.cuh"

// Byte offset of a chunk (16 bytes) in a tile of [rows, DMAX] 16-bit elements in shared memory.
// Eight rows at one chunk, which is what ldmatrix reads, must lie in eight different groups of 4
// banks. Rows of N chunks step through 8 / w groups before they repeat, w being the largest power of
// two in N, at most 8; XOR of the chunk's lowest bits with the repetition's number parts them.
template <int DMAX>
__device__ __forceinline__ unsigned swizzled(unsigned row, unsigned chunk) {
  constexpr unsigned N = DMAX / 8, power = N & -N, w = power < 8 ? power : 8;
  return row * (DMAX * 2) + ((chunk ^ (row / (8 / w) & (w - 1))) << 4);
}

// Starts copying a tile of BC keys, zeros beyond `valid` rows and beyond D. The block's first 128
// threads; up to 8 neighbours share a row, and what a thread copies lies at fixed distances in shared
// memory.
template <class E, int BC, int DMAX>
__device__ __forceinline__ void copy_tile(unsigned char* dst, const E* src, int valid, int D) {
  constexpr int N = DMAX / 8, G = N < 8 ? N : 8, ROWS = 128 / G;
  const int row = threadIdx.x / G, chunk = threadIdx.x % G;
#pragma unroll
  for (int c = 0; c < N; c += G) {
    if (c + chunk >= N) continue;
    unsigned char* to = dst + swizzled<DMAX>(row, c + chunk);
    const E* from = src + (size_t)row * D + (c + chunk) * 8;
#pragma unroll
    for (int r = 0; r < BC; r += ROWS) {
      const bool ok = row + r < valid && (c + chunk) * 8 < D;
      cp_async16(to + r * (DMAX * 2), ok ? from + (size_t)r * D : src, ok);
    }
  }
}

// 16 query rows of a warp: this lane's share of Q and O, and the online softmax of its two rows.
template <class E, int DMAX, int Bc>
struct QueryTile {
  static constexpr int STEPS = DMAX / 16;
  unsigned q[STEPS][4];
  float o[DMAX / 8][4], m[2], l[2];  // m before scaling
  int row;  // its first row; the other is row + 8

  __device__ __forceinline__ void load(const HeadSegment<E>& a, int firstRow) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, D = a.p.D;
    row = firstRow + g;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      m[i] = -INFINITY;
      l[i] = 0.f;
    }
#pragma unroll
    for (int ks = 0; ks < STEPS; ks++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int r = row + 8 * (e & 1), d = ks * 16 + (e >> 1) * 8 + t * 2;
        q[ks][e] = r < a.rows && d < D ? *reinterpret_cast<const unsigned*>(a.q(r) + d) : 0;
      }
#pragma unroll
    for (int n = 0; n < DMAX / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[n][e] = 0.f;
  }

  __device__ __forceinline__ void mask(float (&s)[Bc / 8][4], const HeadSegment<E>& a,
                                       int key0) const {
    const int t = threadIdx.x & 3;
    const int limit[2] = {a.visible(row), a.visible(row + 8)};
    if (key0 + Bc <= limit[0]) return;
#pragma unroll
    for (int n = 0; n < Bc / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if (key0 + n * 8 + t * 2 + (e & 1) >= limit[e >> 1]) s[n][e] = -INFINITY;
      }
  }

  // S becomes P; m and l follow, and O is to shrink. The 4 lanes of a row are neighbours. Every row
  // sees key 0, so its m is finite from the first tile on.
  __device__ __forceinline__ void weigh(float (&s)[Bc / 8][4], float scaleLog2, float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float mNew = m[i];
#pragma unroll
      for (int n = 0; n < Bc / 8; n++) mNew = fmaxf(mNew, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
      mNew = fmaxf(mNew, __shfl_xor_sync(0xffffffffu, mNew, 1));
      mNew = fmaxf(mNew, __shfl_xor_sync(0xffffffffu, mNew, 2));
      shrink[i] = exp2_approx((m[i] - mNew) * scaleLog2);  // 0 at first, when m is -inf
      m[i] = mNew;
      l[i] *= shrink[i];
      const float shift = -mNew * scaleLog2;
#pragma unroll
      for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; e++) {
          s[n][e] = exp2_approx(fmaf(s[n][e], scaleLog2, shift));
          l[i] += s[n][e];
        }
    }
  }

  __device__ __forceinline__ void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int n = 0; n < DMAX / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[n][e] *= shrink[e >> 1];
  }

  __device__ __forceinline__ void softmax(float (&s)[Bc / 8][4], float scaleLog2) {
    float shrink[2];
    weigh(s, scaleLog2, shrink);
    rescale(shrink);
  }

  // Of every two column tiles an even lane writes the first and an odd one the second, 4 columns each:
  // the 4 lanes of a row fill 32 bytes, where 2 columns each would fill half of that twice.
  __device__ __forceinline__ void store(const HeadSegment<E>& a, float scaleLog2) {
    const int t = threadIdx.x & 3, odd = t & 1;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
      l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
      const bool inside = row + 8 * i < a.rows;
      const float inverse = 1.f / l[i];
#pragma unroll
      for (int n = 0; n < DMAX / 8; n += 2) {
        const unsigned first = pack(o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse, E{});
        const unsigned second = pack(o[n + 1][2 * i] * inverse, o[n + 1][2 * i + 1] * inverse, E{});
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        const int d = (n + odd) * 8 + (t >> 1) * 4;
        const uint2 four = make_uint2(odd ? other : first, odd ? second : other);
        if (inside && d < a.p.D) *reinterpret_cast<uint2*>(a.o(row + 8 * i) + d) = four;
      }
      const float log2Sum = m[i] * scaleLog2 + log2f(l[i]);
      if (inside && t == 0) a.lse(row + 8 * i) = log2Sum * 0.6931471805599453f;  // ln 2
    }
  }
};

// Grid (ceil(rows / (64 * TILES)), H, n), block 128, shared memory 4 tiles of 64 x DMAX elements. A
// warp owns TILES times 16 rows.
template <class E, int DMAX, int TILES>
__device__ __forceinline__ void attention_v4(const Prefill<E>& prefill) {
  constexpr int Br = 64 * TILES, Bc = 64, BYTES = Bc * DMAX * 2;
  DYN_SMEM(smem);  // two buffers, each K [Bc, DMAX] and V [Bc, DMAX]
  const unsigned warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const unsigned matrix = lane >> 3, matrixRow = lane & 7;  // what this lane points ldmatrix to
  const HeadSegment<E> a(prefill, prefill.segments[blockIdx.z], blockIdx.y);
  const int firstRow = (gridDim.x - 1 - blockIdx.x) * Br;  // the longest rows start first
  if (firstRow >= a.rows) return;
  const int visible = a.visible(min(firstRow + Br, a.rows) - 1);

  auto copy = [&](int key0) {
    unsigned char* k = smem + (key0 / Bc & 1) * (2 * BYTES);
    copy_tile<E, Bc, DMAX>(k, a.k(key0), a.keyCount - key0, prefill.D);
    copy_tile<E, Bc, DMAX>(k + BYTES, a.v(key0), a.keyCount - key0, prefill.D);
    cp_async_commit();
  };
  copy(0);

  const int warpRow = firstRow + (int)warp * 16 * TILES;
  const float scaleLog2 = prefill.scale * 1.4426950408889634f;  // exp(x) = exp2(x log2(e))
  QueryTile<E, DMAX, Bc> rows[TILES];
#pragma unroll
  for (int i = 0; i < TILES; i++) rows[i].load(a, warpRow + 16 * i);

  for (int key0 = 0; key0 < visible; key0 += Bc) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is there for all, and all are done with the one before
    if (key0 + Bc < visible) copy(key0 + Bc);
    const unsigned char *k = smem + (key0 / Bc & 1) * (2 * BYTES), *v = k + BYTES;

    // S = Q K^T
    float s[TILES][Bc / 8][4] = {};
#pragma unroll
    for (int ks = 0; ks < DMAX / 16; ks++)
#pragma unroll
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned b[4];
        ldmatrix_x4(b, k + swizzled<DMAX>(n * 8 + (matrix >> 1) * 8 + matrixRow,
                                          ks * 2 + (matrix & 1)));
#pragma unroll
        for (int i = 0; i < TILES; i++) {
          mma(s[i][n], rows[i].q[ks], b[0], b[1], E{});
          mma(s[i][n + 1], rows[i].q[ks], b[2], b[3], E{});
        }
      }

#pragma unroll
    for (int i = 0; i < TILES; i++) {
      rows[i].mask(s[i], a, key0);
      rows[i].softmax(s[i], scaleLog2);
    }

    // O += P V
#pragma unroll
    for (int ks = 0; ks < Bc / 16; ks++) {
      unsigned p[TILES][4];
#pragma unroll
      for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float* pair = &s[i][2 * ks + (e >> 1)][2 * (e & 1)];
          p[i][e] = pack(pair[0], pair[1], E{});
        }
#pragma unroll
      for (int n = 0; n < DMAX / 8; n += 2) {
        unsigned b[4];
        ldmatrix_x4_trans(
            b, v + swizzled<DMAX>(ks * 16 + (matrix & 1) * 8 + matrixRow, n + (matrix >> 1)));
#pragma unroll
        for (int i = 0; i < TILES; i++) {
          mma(rows[i].o[n], p[i], b[0], b[1], E{});
          mma(rows[i].o[n + 1], p[i], b[2], b[3], E{});
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < TILES; i++) rows[i].store(a, scaleLog2);
}

// As many blocks on a multiprocessor as the registers allow without spilling.
constexpr int tensor_blocks(int width) { return width <= 32 ? 4 : width <= 64 ? 3 : 2; }

#define ATTENTION_TENSOR(version, E, element, DMAX, TILES)                       \
  extern "C" __global__ void __launch_bounds__(128, tensor_blocks(DMAX * TILES)) \
      attention_##version##_d##DMAX##_##element(PREFILL_PARAMETERS(E)) {         \
    attention_v4<E, DMAX, TILES>(PREFILL(E));                                    \
  }                                                                              \
  EXPORT_KERNEL(attention_##version##_d##DMAX##_##element)
#define ATTENTION_V4(E, element)                 \
  ATTENTION_TENSOR(v4, E, element, 16, 1)        \
  ATTENTION_TENSOR(v4, E, element, 32, 1)        \
  ATTENTION_TENSOR(v4, E, element, 64, 1)        \
  ATTENTION_TENSOR(v4, E, element, 80, 1)        \
  ATTENTION_TENSOR(v4, E, element, 96, 1)        \
  ATTENTION_TENSOR(v4, E, element, 128, 1)

ATTENTION_V4(__half, f16)
ATTENTION_V4(__nv_bfloat16, bf16)
