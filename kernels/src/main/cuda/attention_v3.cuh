// Version 3: tiled flash attention on the float units.
//
// Idea: 64 query rows (Br) stay in shared memory while tiles of 32 keys (Bc) pass by, so every
//   K and V element that is read from global memory serves 64 rows; inside a tile every thread
//   holds 4 x 4 scores and 4 x D / 8 outputs in registers, so every shared element that is read
//   serves 4 products (Dao et al., "FlashAttention", 2022; loop order of "FlashAttention-2", 2023).
// Changed from version 2: reuse of K and V between rows, coalesced and 16 bytes wide; f16 and bf16 are
//   widened once, on the way into shared memory. Tiles that the causal mask hides are not visited.
// Limits: no tensor cores; loads and arithmetic take turns; shared memory up to 76 KB at D = 128.
// D a multiple of 8 up to 128; one kernel for D up to 32, 64, 96, 128, the rest filled with zeros.
// Gain: not yet measured.
#pragma once
#include "attention_common.cuh"

// A [rows, D] block from global memory as floats in shared memory, dst row stride STRIDE; zero
// beyond `valid` rows and beyond D. DMAX columns, 128 threads.
template <class E, int ROWS, int DMAX, int STRIDE>
__device__ __forceinline__ void load_tile(float* dst, const E* src, size_t srcStride, int valid,
                                          int D, float factor) {
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * (DMAX / 4); i += 128) {
    const int row = i / (DMAX / 4), d = i % (DMAX / 4) * 4;
    float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
    if (row < valid && d < D) x = load4(src + row * srcStride + d);
    *reinterpret_cast<float4*>(dst + row * STRIDE + d) =
        make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
  }
}

// sum += a . b
__device__ __forceinline__ void dot4(float& sum, const float4& a, const float4& b) {
  sum = fmaf(a.x, b.x, sum);
  sum = fmaf(a.y, b.y, sum);
  sum = fmaf(a.z, b.z, sum);
  sum = fmaf(a.w, b.w, sum);
}

// o += p * v
__device__ __forceinline__ void axpy4(float* o, float p, const float4& v) {
  o[0] = fmaf(p, v.x, o[0]);
  o[1] = fmaf(p, v.y, o[1]);
  o[2] = fmaf(p, v.z, o[2]);
  o[3] = fmaf(p, v.w, o[3]);
}

// Grid (ceil(rows / 64), H, n), block 128.
template <class E, int DMAX>
__device__ __forceinline__ void attention_v3(const Prefill<E>& prefill) {
  constexpr int Br = 64, Bc = 32;
  // Rows of Q, K and P are 4 floats longer than they need: eight rows then lie in eight different
  // groups of banks, so 16-byte reads of a column do not collide.
  constexpr int QK = DMAX + 4, PS = Bc + 4;
  DYN_SMEM(smem);
  float* sQ = reinterpret_cast<float*>(smem);  // [Br, QK], scaled
  float* sK = sQ + Br * QK;                    // [Bc, QK]
  float* sV = sK + Bc * QK;                    // [Bc, DMAX]
  float* sP = sV + Bc * DMAX;                  // [Br, PS]

  const HeadSegment<E> a(prefill, prefill.segments[blockIdx.z], blockIdx.y);
  const int firstRow = (gridDim.x - 1 - blockIdx.x) * Br;  // the longest rows start first
  if (firstRow >= a.rows) return;
  const int D = prefill.D, tx = threadIdx.x & 7, ty = threadIdx.x >> 3;
  const int rows = min(Br, a.rows - firstRow);
  const int visible = a.visible(firstRow + rows - 1);

  const int queryStride = 3 * prefill.H * D;
  load_tile<E, Br, DMAX, QK>(sQ, a.q(firstRow), queryStride, rows, D, prefill.scale);
  int limit[4];  // keys that this thread's rows ty * 4 + i may look at
  float m[4], l[4], o[4][DMAX / 8];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    limit[i] = a.visible(firstRow + ty * 4 + i);
    m[i] = -INFINITY;
    l[i] = 0.f;
#pragma unroll
    for (int c = 0; c < DMAX / 8; c++) o[i][c] = 0.f;
  }

  for (int key0 = 0; key0 < visible; key0 += Bc) {
    __syncthreads();  // everyone is done with the tile before
    load_tile<E, Bc, DMAX, QK>(sK, a.k(key0), D, a.keyCount - key0, D, 1.f);
    load_tile<E, Bc, DMAX, DMAX>(sV, a.v(key0), D, a.keyCount - key0, D, 1.f);
    __syncthreads();

    // S = Q K^T: rows ty * 4 + i, keys tx + 8 * j.
    float s[4][4] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
      float4 q[4], k[4];
#pragma unroll
      for (int i = 0; i < 4; i++) q[i] = lds128_f32(sQ + (ty * 4 + i) * QK + d);
#pragma unroll
      for (int j = 0; j < 4; j++) k[j] = lds128_f32(sK + (tx + 8 * j) * QK + d);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) dot4(s[i][j], q[i], k[j]);
    }

    // Online softmax; the 8 threads of a row are neighbours in a warp.
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float mNew = m[i];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (key0 + tx + 8 * j >= limit[i]) s[i][j] = -INFINITY;
        mNew = fmaxf(mNew, s[i][j]);
      }
#pragma unroll
      for (int x = 4; x > 0; x >>= 1) mNew = fmaxf(mNew, __shfl_xor_sync(0xffffffffu, mNew, x));
      const float shrink = expf(m[i] - mNew);  // 0 at first, when m is -inf
      m[i] = mNew;
      l[i] *= shrink;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        s[i][j] = expf(s[i][j] - mNew);
        l[i] += s[i][j];
      }
#pragma unroll
      for (int c = 0; c < DMAX / 8; c++) o[i][c] *= shrink;
      // In the order in which the thread holds them: place tx * 4 + j is key tx + 8 * j.
      sts128(sP + (ty * 4 + i) * PS + tx * 4, make_float4(s[i][0], s[i][1], s[i][2], s[i][3]));
    }
    __syncwarp();  // a row of P is written and read by one warp

    // O += P V: columns tx * 4 + 32 * c ..
#pragma unroll 2
    for (int place = 0; place < Bc; place += 4) {
      float4 p[4];
#pragma unroll
      for (int i = 0; i < 4; i++) p[i] = lds128_f32(sP + (ty * 4 + i) * PS + place);
#pragma unroll
      for (int c = 0; c < DMAX / 32; c++) {
        const float* v = sV + place / 4 * DMAX + 32 * c + tx * 4;  // keys place / 4 + 8 * j
        const float4 v0 = lds128_f32(v), v1 = lds128_f32(v + 8 * DMAX);
        const float4 v2 = lds128_f32(v + 16 * DMAX), v3 = lds128_f32(v + 24 * DMAX);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          axpy4(o[i] + 4 * c, p[i].x, v0);
          axpy4(o[i] + 4 * c, p[i].y, v1);
          axpy4(o[i] + 4 * c, p[i].z, v2);
          axpy4(o[i] + 4 * c, p[i].w, v3);
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int x = 4; x > 0; x >>= 1) l[i] += __shfl_xor_sync(0xffffffffu, l[i], x);
    const int row = firstRow + ty * 4 + i;
    if (row >= a.rows) continue;
#pragma unroll
    for (int c = 0; c < DMAX / 32; c++) {
      const int d = 32 * c + tx * 4;
      if (d < D) {
        const float *x = o[i] + 4 * c, f = 1.f / l[i];
        store4(a.o(row) + d, make_float4(x[0] * f, x[1] * f, x[2] * f, x[3] * f));
      }
    }
    if (tx == 0) a.lse(row) = m[i] + logf(l[i]);
  }
}

#define ATTENTION_V3(E, element, DMAX)                                    \
  extern "C" __global__ void __launch_bounds__(128, DMAX <= 64 ? 3 : 2)   \
      attention_v3_d##DMAX##_##element(PREFILL_PARAMETERS(E)) {           \
    attention_v3<E, DMAX>(PREFILL(E));                                    \
  }                                                                       \
  EXPORT_KERNEL(attention_v3_d##DMAX##_##element)
#define ATTENTION_V3_WIDTHS(E, element) \
  ATTENTION_V3(E, element, 32)          \
  ATTENTION_V3(E, element, 64)          \
  ATTENTION_V3(E, element, 96)          \
  ATTENTION_V3(E, element, 128)

ATTENTION_V3_WIDTHS(float, f32)
ATTENTION_V3_WIDTHS(__half, f16)
ATTENTION_V3_WIDTHS(__nv_bfloat16, bf16)
