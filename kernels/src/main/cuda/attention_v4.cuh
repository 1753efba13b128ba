// Version 4: tiled flash attention on the tensor cores.
//
// Idea: both products are mma.sync m16n8k16. A warp owns 16 query rows, whose fragments of Q, S and O
//   never leave its registers: the accumulator layout of S is the operand layout of P. K and V tiles of 64 keys
//   come by cp.async into two buffers, the next one while this one is worked on, with a single barrier
//   a tile; they lie XOR-swizzled, so that ldmatrix meets no bank conflict.
// Changed from version 3: tensor cores instead of float units, copies behind arithmetic, P in registers
//   rounded to the input's type. One exp2 with log2(e) folded into the scale takes the place of exp, and only
//   tiles on the diagonal or at the end are masked.
// Limits: f16 and bf16; a K or V fragment read from shared memory serves 16 rows only.
// D a multiple of 8 up to 128; one kernel for D up to 16, 32, 64, 80, 96, 128, the rest filled with zeros.
// Gain: not yet measured.
#pragma once
#include "attention_common.cuh"

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                    __half) {
  mma_m16n8k16_f16(d, a, b0, b1);
}
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                                    __nv_bfloat16) {
  mma_m16n8k16_bf16(d, a, b0, b1);
}
__device__ __forceinline__ unsigned pack(float lo, float hi, __half) { return pack_f16x2(lo, hi); }
__device__ __forceinline__ unsigned pack(float lo, float hi, __nv_bfloat16) {
  return pack_bf16x2(lo, hi);
}

// A tile of [rows, DMAX] 16-bit elements in shared memory, in chunks of 16 bytes. Eight rows at one
// chunk, which is what ldmatrix reads, must lie in eight different groups of 4 banks. Rows of N
// chunks step through 8 / w groups before they repeat, w being the largest power of two in N, at most
// 8; XOR of the chunk's lowest bits with the number of the repetition takes each round elsewhere.
template <int DMAX>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  constexpr int N = DMAX / 8, power = N & -N, w = power < 8 ? power : 8;
  return row * (DMAX * 2) + ((chunk ^ (row / (8 / w) & (w - 1))) << 4);
}

// Starts copying a tile of BC keys, zeros beyond `valid` rows and beyond D. 128 threads.
template <class E, int BC, int DMAX>
__device__ __forceinline__ void copy_tile(unsigned char* dst, const E* src, int valid, int D) {
  constexpr int N = DMAX / 8;
#pragma unroll
  for (int n = 0; n < BC * N / 128; n++) {
    const int i = threadIdx.x + n * 128, row = i / N, chunk = i % N;
    const bool ok = row < valid && chunk * 8 < D;
    cp_async16(dst + swizzled<DMAX>(row, chunk), ok ? src + (size_t)row * D + chunk * 8 : src, ok);
  }
}

// Grid (ceil(rows / 64), H, n), block 128, shared memory 4 tiles of 64 x DMAX elements.
template <class E, int DMAX>
__device__ __forceinline__ void attention_v4(const Prefill<E>& prefill) {
  constexpr int Br = 64, Bc = 64, TILE = Bc * DMAX * 2, STEPS = DMAX / 16;
  DYN_SMEM(smem);  // K 2 x TILE, V 2 x TILE
  unsigned char *sK = smem, *sV = smem + 2 * TILE;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int matrix = lane >> 3, matrixRow = lane & 7;  // what this lane points ldmatrix to
  const HeadSegment<E> a(prefill, blockIdx.z, blockIdx.y);
  const int firstRow = (gridDim.x - 1 - blockIdx.x) * Br;  // the longest rows start first
  if (firstRow >= a.rows) return;
  const int D = prefill.D;
  const int visible = a.visible(min(firstRow + Br, a.rows) - 1, prefill.causal);

  auto copy = [&](int key0) {
    const int buffer = key0 / Bc & 1;
    copy_tile<E, Bc, DMAX>(sK + buffer * TILE, a.K + (size_t)key0 * D, a.keyCount - key0, D);
    copy_tile<E, Bc, DMAX>(sV + buffer * TILE, a.V + (size_t)key0 * D, a.keyCount - key0, D);
    cp_async_commit();
  };
  copy(0);

  // Rows row[0] = g and row[1] = g + 8 of the warp's 16; limit: the keys that they may look at.
  const int warpRow = firstRow + warp * 16;
  const int row[2] = {warpRow + g, warpRow + g + 8};
  const int limit[2] = {a.visible(row[0], prefill.causal), a.visible(row[1], prefill.causal)};
  const int warpLimit = a.visible(warpRow, prefill.causal);
  unsigned q[STEPS][4];
#pragma unroll
  for (int ks = 0; ks < STEPS; ks++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int r = row[e & 1], d = ks * 16 + (e >> 1) * 8 + t * 2;
      q[ks][e] = r < a.rows && d < D
                     ? *reinterpret_cast<const unsigned*>(a.Q + (size_t)r * a.queryStride + d)
                     : 0;
    }

  const float scale = prefill.scale * 1.4426950408889634f;  // exp(x) = exp2(x log2(e))
  float o[DMAX / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};  // m before scaling
  for (int key0 = 0; key0 < visible; key0 += Bc) {
    cp_async_wait<0>();
    __syncthreads();  // this tile is there for all, and all are done with the one before
    if (key0 + Bc < visible) copy(key0 + Bc);
    const unsigned char *k = sK + (key0 / Bc & 1) * TILE, *v = sV + (key0 / Bc & 1) * TILE;

    // S = Q K^T
    float s[Bc / 8][4] = {};
#pragma unroll
    for (int ks = 0; ks < STEPS; ks++)
#pragma unroll
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned b[4];
        ldmatrix_x4(b, k + swizzled<DMAX>(n * 8 + (matrix >> 1) * 8 + matrixRow,
                                          ks * 2 + (matrix & 1)));
        mma(s[n], q[ks], b[0], b[1], E{});
        mma(s[n + 1], q[ks], b[2], b[3], E{});
      }

    if (key0 + Bc > warpLimit) {
#pragma unroll
      for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          if (key0 + n * 8 + t * 2 + (e & 1) >= limit[e >> 1]) s[n][e] = -INFINITY;
        }
    }

    // Online softmax; the 4 lanes of a row are neighbours. Every row has seen key 0, so m is finite.
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float mNew = m[i];
#pragma unroll
      for (int n = 0; n < Bc / 8; n++) mNew = fmaxf(mNew, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
      mNew = fmaxf(mNew, __shfl_xor_sync(0xffffffffu, mNew, 1));
      mNew = fmaxf(mNew, __shfl_xor_sync(0xffffffffu, mNew, 2));
      const float shrink = exp2f((m[i] - mNew) * scale);  // 0 at first, when m is -inf
      m[i] = mNew;
      l[i] *= shrink;
#pragma unroll
      for (int n = 0; n < DMAX / 8; n++) {
        o[n][2 * i] *= shrink;
        o[n][2 * i + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < Bc / 8; n++)
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; e++) {
          s[n][e] = exp2f(fmaf(s[n][e], scale, -mNew * scale));
          l[i] += s[n][e];
        }
    }

    // O += P V
#pragma unroll
    for (int ks = 0; ks < Bc / 16; ks++) {
      const float(&s0)[4] = s[2 * ks], (&s1)[4] = s[2 * ks + 1];
      const unsigned p[4] = {pack(s0[0], s0[1], E{}), pack(s0[2], s0[3], E{}),
                             pack(s1[0], s1[1], E{}), pack(s1[2], s1[3], E{})};
#pragma unroll
      for (int n = 0; n < DMAX / 8; n += 2) {
        unsigned b[4];
        ldmatrix_x4_trans(
            b, v + swizzled<DMAX>(ks * 16 + (matrix & 1) * 8 + matrixRow, n + (matrix >> 1)));
        mma(o[n], p, b[0], b[1], E{});
        mma(o[n + 1], p, b[2], b[3], E{});
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; i++) {
    l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
    l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
    if (row[i] >= a.rows) continue;
#pragma unroll
    for (int n = 0; n < DMAX / 8; n++) {
      if (n * 8 < D) {
        *reinterpret_cast<unsigned*>(a.O + (size_t)row[i] * a.outputStride + n * 8 + t * 2) =
            pack(o[n][2 * i] / l[i], o[n][2 * i + 1] / l[i], E{});
      }
    }
    // ln l + m: m and l belong together by the rounded product, the one that exp2 saw.
    if (t == 0) {
      a.lse[(size_t)row[i] * prefill.H] = (m[i] * scale + log2f(l[i])) * 0.6931471805599453f;
    }
  }
}

#define ATTENTION_V4(E, element, DMAX)                                    \
  extern "C" __global__ void __launch_bounds__(128)                       \
      attention_v4_d##DMAX##_##element(PREFILL_PARAMETERS(E)) {           \
    attention_v4<E, DMAX>(PREFILL(E));                                    \
  }                                                                       \
  EXPORT_KERNEL(attention_v4_d##DMAX##_##element)
#define ATTENTION_V4_WIDTHS(E, element) \
  ATTENTION_V4(E, element, 16)          \
  ATTENTION_V4(E, element, 32)          \
  ATTENTION_V4(E, element, 64)          \
  ATTENTION_V4(E, element, 80)          \
  ATTENTION_V4(E, element, 96)          \
  ATTENTION_V4(E, element, 128)

ATTENTION_V4_WIDTHS(__half, f16)
ATTENTION_V4_WIDTHS(__nv_bfloat16, bf16)
