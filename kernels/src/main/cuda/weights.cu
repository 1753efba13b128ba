// What a checkpoint's matrices become when they are loaded, chunk by chunk as they arrive.
//
// A checkpoint keeps the matrices of its linear maps as [in, out]; W is [out, in] for every kernel that
// reads it. A chunk is the rows first .. first + n - 1 of the checkpoint's matrix.
//
// repack      W = chunk^T in another element. Idea: tiles of 32 x 32 through shared memory, so that both
//             sides are read and written along their rows; lines of 33 floats, so that the tile's rows and
//             its columns both lie in 32 different banks.
// quantise    W = chunk^T in int8, one f32 scale for each 64 along `in` (gemv.cu), to the last bit what
//             Int8Weights makes on the host. Idea: the same tile with 64 rows, each column of which is a
//             group. Also for a chunk of rows of a table that is [out, in] already, without the tile.
// dequantise  W in f16, bf16 or f32 again, for kernels that read no int8. Idea: 16 bytes a store, and side
//             by side, since a result has 2 or 4 times the bytes of what it was read from.
//
// v0 of each: one thread a weight, or a group; one kernel for all elements, weights_v0_<operation>_any.
//
// Limits: up to 2^31 - 1 weights a matrix, `in` up to 2^20. Gains: not yet measured.
#include "element.cuh"

constexpr int COLUMNS = 32, LINE = COLUMNS + 1;  // of a tile
constexpr int GROUP = 64;                        // int8 weights under one scale
constexpr int WARPS = 8;

extern "C" __global__ void __launch_bounds__(256)
    weights_v0_repack_any(const void* __restrict__ chunk,  // [n, outputs] of `from`
                          void* __restrict__ w,            // [outputs, in] of `to`
                          int first, int n, int in, int outputs, int from, int to) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, k = i / outputs, o = i % outputs;
  if (k < n) store(w, o * in + first + k, to, load(chunk, i, from));
}
EXPORT_KERNEL(weights_v0_repack_any)

// tile [ROWS, LINE] = chunk[k0 .. , o0 .. ], 0 beyond the chunk. A block of 32 x WARPS threads.
template <int ROWS, class E>
__device__ __forceinline__ void read_tile(
    const E* __restrict__ chunk, float* tile, int n, int outputs, int k0, int o0) {
  const int o = o0 + threadIdx.x;
#pragma unroll
  for (int i = 0; i < ROWS; i += WARPS) {
    const int k = i + threadIdx.y;
    const bool inside = k0 + k < n && o < outputs;
    tile[k * LINE + threadIdx.x] = inside ? load(chunk + (size_t)(k0 + k) * outputs + o) : 0.0f;
  }
  __syncthreads();
}

// Grid (ceil(outputs / 32), ceil(n / 32)), 32 x WARPS threads, shared memory for a tile of 32 rows.
template <class X, class Y>
__device__ __forceinline__ void repack(const X* __restrict__ chunk,  // [n, outputs]
                                       Y* __restrict__ w,            // [outputs, in]
                                       int first, int n, int in, int outputs) {
  DYN_SMEM(smem);
  float* tile = reinterpret_cast<float*>(smem);
  const int k0 = blockIdx.y * 32, o0 = blockIdx.x * COLUMNS;
  read_tile<32>(chunk, tile, n, outputs, k0, o0);
  const int k = k0 + threadIdx.x;
#pragma unroll
  for (int i = 0; i < COLUMNS; i += WARPS) {
    const int column = i + threadIdx.y, o = o0 + column;
    if (k < n && o < outputs) {
      store(w + (size_t)o * in + first + k, tile[threadIdx.x * LINE + column]);
    }
  }
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// rintf takes ties to even. The scale of subnormal weights is coarse, so a quotient may exceed 127.
__device__ __forceinline__ signed char quantised(float w, float scale) {
  if (!(scale > 0.0f)) return 0;  // all weights are 0, too small for a scale, or not all are finite
  return (signed char)fminf(fmaxf(rintf(__fdiv_rn(w, scale)), -127.0f), 127.0f);
}

// One thread a group. The chunk holds `rows` rows of W from `firstRow` on, and of each the weights
// first .. first + n - 1; they lie rowStride and stride apart, so this takes a table as well.
// Signs aside, numbers are ordered as their bits are, with infinity and NaN above all others.
extern "C" __global__ void __launch_bounds__(256)
    weights_v0_quantise_any(const void* __restrict__ chunk,
                            signed char* __restrict__ w,  // [outputs, in]
                            float* __restrict__ scales,   // [outputs, ceil(in / 64)]
                            int firstRow, int rows, int rowStride, int first, int n, int stride, int in,
                            int element) {
  const int groups = (n + GROUP - 1) / GROUP;
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / groups;
  if (row >= rows) return;
  const int k0 = (int)(i % groups) * GROUP, count = min(GROUP, n - k0);
  unsigned most = 0;
  for (int k = k0; k < k0 + count; k++) {
    most = max(most, magnitude(load(chunk, row * rowStride + (size_t)k * stride, element)));
  }
  const float scale = most < 0x7f800000u ? __fdiv_rn(__uint_as_float(most), 127.0f) : NAN;
  for (int k = k0; k < k0 + count; k++) {
    w[(firstRow + row) * in + first + k] =
        quantised(load(chunk, row * rowStride + (size_t)k * stride, element), scale);
  }
  scales[(firstRow + row) * ((in + GROUP - 1) / GROUP) + (first + k0) / GROUP] = scale;
}
EXPORT_KERNEL(weights_v0_quantise_any)

extern "C" __global__ void __launch_bounds__(256)
    weights_v0_dequantise_any(const signed char* __restrict__ w,  // [outputs, in]
                              const float* __restrict__ scales,   // [outputs, ceil(in / 64)]
                              void* __restrict__ out,             // [outputs, in] of `element`
                              int in, int outputs, int element) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / in, k = i % in;
  if (row < outputs) {
    store(out, i, element, scales[row * ((in + GROUP - 1) / GROUP) + k / GROUP] * w[i]);
  }
}
EXPORT_KERNEL(weights_v0_dequantise_any)

// A warp's group of `count` weights, of which a lane has those numbered lane and lane + 32, 0 beyond the
// last. A weight that is not finite makes the scale NaN: the host, which would refuse it, does not see it
// here, and so it shows in the first sum.
__device__ __forceinline__ void quantise_group(
    float a, float b, int count, signed char* q, float* scale) {
  // magnitudes are ordered as their bits are, with infinity and NaN above all others
  unsigned most = max(magnitude(a), magnitude(b));
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
  const float s = most < 0x7f800000u ? __fdiv_rn(__uint_as_float(most), 127.0f) : NAN;
  const int lane = threadIdx.x;
  if (lane < count) q[lane] = quantised(a, s);
  if (lane + 32 < count) q[lane + 32] = quantised(b, s);
  if (lane == 0) *scale = s;
}

// Kernels: weights_quantise_<element of the chunk>. `first` is a multiple of 64, and so is n but at the
// end of `in`. Grid (ceil(outputs / 32), ceil(n / 64)), 32 x WARPS threads, shared memory for 64 rows.
template <class X>
__device__ __forceinline__ void quantise(const X* __restrict__ chunk,  // [n, outputs]
                                         signed char* __restrict__ w,  // [outputs, in]
                                         float* __restrict__ scales,   // [outputs, ceil(in / 64)]
                                         int first, int n, int in, int outputs) {
  DYN_SMEM(smem);
  float* tile = reinterpret_cast<float*>(smem);
  const int k0 = blockIdx.y * GROUP, o0 = blockIdx.x * COLUMNS, groups = (in + GROUP - 1) / GROUP;
  read_tile<GROUP>(chunk, tile, n, outputs, k0, o0);
#pragma unroll 1
  for (int i = threadIdx.y; i < COLUMNS && o0 + i < outputs; i += WARPS) {
    const size_t o = o0 + i;
    quantise_group(tile[threadIdx.x * LINE + i], tile[(threadIdx.x + 32) * LINE + i],
                   min(GROUP, n - k0), w + o * in + first + k0, scales + o * groups + (first + k0) / GROUP);
  }
}

// Kernels: weights_quantise_<element of the chunk>_table. Here the chunk's rows are rows of W from `first`
// on. A warp a group: ceil(n groups / WARPS) blocks of 32 x WARPS threads.
template <class X>
__device__ __forceinline__ void quantise_table(const X* __restrict__ chunk,  // [n, in]
                                               signed char* __restrict__ w,  // [outputs, in]
                                               float* __restrict__ scales,   // [outputs, ceil(in / 64)]
                                               int first, int n, int in) {
  const unsigned groups = (in + GROUP - 1) / GROUP, group = blockIdx.x * WARPS + threadIdx.y;
  if (group >= n * groups) return;
  const size_t row = group / groups;
  const int k0 = group % groups * GROUP, count = min(GROUP, in - k0), lane = threadIdx.x;
  const X* x = chunk + row * in + k0;
  quantise_group(lane < count ? load(x + lane) : 0.0f, lane + 32 < count ? load(x + lane + 32) : 0.0f,
                 count, w + (first + row) * in + k0, scales + first * (size_t)groups + group);
}

// n bytes in one load.
template <unsigned n>
struct alignas(n) Bytes {
  signed char q[n];
};

// Kernels: weights_dequantise_<element of out>. 256 threads, each with what 16 bytes of out hold: these
// are under one scale where they are of one row, which is so where rows are multiples of 16 bytes.
template <class E>
__device__ __forceinline__ void dequantise(const signed char* __restrict__ w,  // [outputs, in]
                                           const float* __restrict__ scales,   // [outputs, ceil(in / 64)]
                                           E* __restrict__ out,                // [outputs, in]
                                           int in, int outputs) {
  constexpr unsigned PER = per16<E>;
  const unsigned groups = (in + GROUP - 1) / GROUP, n = (unsigned)in * outputs;
  const unsigned i = PER * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  if (in % PER == 0) {
    const float scale = scales[i / in * groups + i % in / GROUP];
    const Bytes<PER> q = *reinterpret_cast<const Bytes<PER>*>(w + i);
    float x[PER];
#pragma unroll
    for (unsigned j = 0; j < PER; j++) x[j] = scale * q.q[j];
    store16(out + i, x);
  } else {
    for (unsigned j = i; j < n && j < i + PER; j++) {
      store(out + j, scales[j / in * groups + j % in / GROUP] * w[j]);
    }
  }
}

#define REPACK(x, X, y, Y)                                                                  \
  extern "C" __global__ void __launch_bounds__(256) weights_repack_##x##_##y(               \
      const X* chunk, Y* w, int first, int n, int in, int outputs) {                        \
    repack(chunk, w, first, n, in, outputs);                                                \
  }                                                                                         \
  EXPORT_KERNEL(weights_repack_##x##_##y)

#define WEIGHTS(e, E)                                                                       \
  REPACK(e, E, f32, float)                                                                  \
  REPACK(e, E, f16, __half)                                                                 \
  REPACK(e, E, bf16, __nv_bfloat16)                                                         \
  extern "C" __global__ void __launch_bounds__(256) weights_quantise_##e(                   \
      const E* chunk, signed char* w, float* scales, int first, int n, int in, int outputs) { \
    quantise(chunk, w, scales, first, n, in, outputs);                                      \
  }                                                                                         \
  EXPORT_KERNEL(weights_quantise_##e)                                                       \
  extern "C" __global__ void __launch_bounds__(256) weights_quantise_##e##_table(           \
      const E* chunk, signed char* w, float* scales, int first, int n, int in) {            \
    quantise_table(chunk, w, scales, first, n, in);                                         \
  }                                                                                         \
  EXPORT_KERNEL(weights_quantise_##e##_table)                                               \
  extern "C" __global__ void __launch_bounds__(256) weights_dequantise_##e(                 \
      const signed char* w, const float* scales, E* out, int in, int outputs) {             \
    dequantise(w, scales, out, in, outputs);                                                \
  }                                                                                         \
  EXPORT_KERNEL(weights_dequantise_##e)

WEIGHTS(f32, float)
WEIGHTS(f16, __half)
WEIGHTS(bf16, __nv_bfloat16)
