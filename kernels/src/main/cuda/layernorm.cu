// Layer normalisation (Ba, Kiros and Hinton, arXiv 1607.06450):
// y[r, c] = (x[r, c] - mean[r]) / sqrt(variance[r] + eps) * gamma[c] + beta[c], the variance that of the
// population, both taken over the C elements of a row, in f32, in two passes: the difference of sums of
// squares would cancel where the mean is far from 0.
//
// Kernels: layernorm_<variant>_<element> where x and y are of one type, layernorm_<variant>_f32_<y>
// where x is f32. y may be x.
#include "norm.cuh"

// v1. One thread a row: the definition, written down. Neighbouring threads read a row apart, so each load
// of a warp touches 32 lines.
// Limits: none. Gain: the yardstick; not yet measured.
template <class X, class Y>
__device__ __forceinline__ void layernorm_v1(const X* x,                        // [R, C]
                                             const float* __restrict__ gamma,  // [C]
                                             const float* __restrict__ beta,   // [C]
                                             Y* y,                             // [R, C]
                                             int R, int C, float eps) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= R) return;
  x += (size_t)row * C;
  y += (size_t)row * C;
  float sum = 0;
  for (int c = 0; c < C; c++) sum += load(x + c);
  const float mean = sum / C;
  float squares = 0;
  for (int c = 0; c < C; c++) {
    const float d = load(x + c) - mean;
    squares = fmaf(d, d, squares);
  }
  const float scale = 1.0f / sqrtf(squares / C + eps);
  for (int c = 0; c < C; c++) store(y + c, normalised(load(x + c), {mean, scale}, gamma[c], beta[c]));
}

// v2. One block a row: neighbouring threads read neighbouring elements, and the block's sums go through
// shuffles and one round of shared memory. New against v1: coalesced loads, C threads' worth of work at
// once. Two barriers a sum remain.
// Shared memory: one float a warp. Limits: none. Gain: not yet measured.
template <class X, class Y>
__device__ __forceinline__ void layernorm_v2(const X* x,                        // [R, C]
                                             const float* __restrict__ gamma,  // [C]
                                             const float* __restrict__ beta,   // [C]
                                             Y* y,                             // [R, C]
                                             int C, float eps) {
  DYN_SMEM(smem);
  float* scratch = reinterpret_cast<float*>(smem);
  x += (size_t)blockIdx.x * C;
  y += (size_t)blockIdx.x * C;
  float sum = 0;
  for (int c = threadIdx.x; c < C; c += blockDim.x) sum += load(x + c);
  const float mean = block_sum(sum, scratch) / C;
  float squares = 0;
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    const float d = load(x + c) - mean;
    squares = fmaf(d, d, squares);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / C + eps);
  for (int c = threadIdx.x; c < C; c += blockDim.x)
    store(y + c, normalised(load(x + c), {mean, scale}, gamma[c], beta[c]));
}

// 8 floats of a lane in shared memory, at multiples of 8. A load or store takes 16 bytes of 8 lanes at
// once; every other four lanes have their halves swapped, so that those 8 fall on different banks.
__device__ __forceinline__ void keep8(float* p, const float (&v)[8]) {
  const int low = threadIdx.x & 4;
  sts128(p + low, make_float4(v[0], v[1], v[2], v[3]));
  sts128(p + (low ^ 4), make_float4(v[4], v[5], v[6], v[7]));
}
__device__ __forceinline__ void kept8(const float* p, float (&v)[8]) {
  const int low = threadIdx.x & 4;
  const float4 a = lds128_f32(p + low), b = lds128_f32(p + (low ^ 4));
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// v3. One warp a row, 16 bytes a load, and the row read once: it stays in shared memory, where each lane
// finds what it put there itself, so that no barrier is needed at all. New against v2: no barriers, a
// third of the reads, wide loads.
// Shared memory: C floats a warp. Limits: C a multiple of 8 (16-byte rows), one row must fit the block's
// shared memory. Gain: not yet measured.
template <class X, class Y>
__device__ __forceinline__ void layernorm_v3(const X* x,                        // [R, C]
                                             const float* __restrict__ gamma,  // [C]
                                             const float* __restrict__ beta,   // [C]
                                             Y* y,                             // [R, C]
                                             int R, int C, float eps) {
  DYN_SMEM(smem);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.x * (blockDim.x / 32) + warp;
  if (row >= R) return;  // the whole warp
  x += (size_t)row * C;
  y += (size_t)row * C;
  float* kept = reinterpret_cast<float*>(smem) + (size_t)warp * C;
  const RowNorm of = norm_of(
      C, eps,
      [&](int c, float(&v)[8]) {
        load8(x + c, v);
        keep8(kept + c, v);
      },
      [&](int c, float(&v)[8]) { kept8(kept + c, v); });
  for (int c = lane * 8; c < C; c += 256) {
    float v[8], g[8], b[8];
    kept8(kept + c, v);
    load_floats(gamma + c, g);
    load_floats(beta + c, b);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = normalised(v[i], of, g[i], b[i]);
    store8(y + c, v);
  }
}

#define LAYERNORM(suffix, X, Y)                                                              \
  extern "C" __global__ void __launch_bounds__(128) layernorm_v1_##suffix(                   \
      const X* x, const float* gamma, const float* beta, Y* y, int R, int C, float eps) {    \
    layernorm_v1(x, gamma, beta, y, R, C, eps);                                              \
  }                                                                                          \
  EXPORT_KERNEL(layernorm_v1_##suffix)                                                       \
  extern "C" __global__ void __launch_bounds__(1024) layernorm_v2_##suffix(                  \
      const X* x, const float* gamma, const float* beta, Y* y, int /* R: the grid */, int C, \
      float eps) {                                                                           \
    layernorm_v2(x, gamma, beta, y, C, eps);                                                 \
  }                                                                                          \
  EXPORT_KERNEL(layernorm_v2_##suffix)                                                       \
  extern "C" __global__ void __launch_bounds__(128) layernorm_v3_##suffix(                   \
      const X* x, const float* gamma, const float* beta, Y* y, int R, int C, float eps) {    \
    layernorm_v3(x, gamma, beta, y, R, C, eps);                                              \
  }                                                                                          \
  EXPORT_KERNEL(layernorm_v3_##suffix)

LAYERNORM(f32, float, float)
LAYERNORM(f16, __half, __half)
LAYERNORM(bf16, __nv_bfloat16, __nv_bfloat16)
LAYERNORM(f32_f16, float, __half)
LAYERNORM(f32_bf16, float, __nv_bfloat16)
