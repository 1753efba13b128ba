// One kernel for each primitive of gpu.cuh, and for what kernels use beyond plain C++. Not part of the product:
// ProbesTest runs what nvcc made of them in an interpreter of PTX, and what g++ made of them on the emulator, and
// holds both to plain loops.
//
// Kernels of one warp take the registers of its lanes as they are: a [32, 4] holds a[0..3] of lane 0, then of lane 1.
// Below sm_80 gpu.cuh has no mma of bf16 and tf32: these two trap there.
#include "element.cuh"

// ---- tensor cores: d [32, 4] += A B, with a [32, 4] and b [32, 2] -----------------------------------------------

template <class Multiply>
__device__ __forceinline__ void multiply_fragments(const unsigned* a, const unsigned* b, float* d, Multiply multiply) {
  const int lane = threadIdx.x;
  unsigned a_of[4];
  float d_of[4];
  for (int i = 0; i < 4; i++) a_of[i] = a[lane * 4 + i];
  for (int i = 0; i < 4; i++) d_of[i] = d[lane * 4 + i];
  multiply(d_of, a_of, b[lane * 2], b[lane * 2 + 1]);
  for (int i = 0; i < 4; i++) d[lane * 4 + i] = d_of[i];
}

#define PROBE_MMA(type, function)                                                                                \
  extern "C" __global__ void __launch_bounds__(32) probe_mma_##type(const unsigned* a, const unsigned* b, float* d) { \
    multiply_fragments(a, b, d, [](float(&d)[4], const unsigned(&a)[4], unsigned b0, unsigned b1) {              \
      function(d, a, b0, b1);                                                                                    \
    });                                                                                                          \
  }                                                                                                              \
  EXPORT_KERNEL(probe_mma_##type)
PROBE_MMA(f16, mma_m16n8k16_f16)
PROBE_MMA(bf16, mma_m16n8k16_bf16)
PROBE_MMA(tf32, mma_m16n8k8_tf32)

// ---- matrices from shared memory: rows [32] of 16 bytes, lane l points to row order[l]; r [32, 4] ---------------

#define PROBE_LDMATRIX(name, function)                                                         \
  extern "C" __global__ void __launch_bounds__(32)                                             \
      name(const uint4* rows, const int* order, unsigned* r) {                                 \
    DYN_SMEM(smem);                                                                            \
    sts128(smem + threadIdx.x * 16, rows[threadIdx.x]);                                        \
    __syncwarp();                                                                              \
    unsigned of[4];                                                                            \
    function(of, smem + order[threadIdx.x] * 16);                                              \
    for (int i = 0; i < 4; i++) r[threadIdx.x * 4 + i] = of[i];                                \
  }                                                                                            \
  EXPORT_KERNEL(name)
PROBE_LDMATRIX(probe_ldmatrix, ldmatrix_x4)
PROBE_LDMATRIX(probe_ldmatrix_trans, ldmatrix_x4_trans)

// ---- asynchronous copies: x [2, 64] in two groups, zero where !valid [2, 64]; y [2, 64] as other threads see it --

extern "C" __global__ void __launch_bounds__(64) probe_cp_async(const uint4* x, const int* valid, uint4* y) {
  DYN_SMEM(smem);
  const int t = threadIdx.x, other = t ^ 33;
  sts128(smem + t * 16, make_uint4(7, 7, 7, 7));
  sts128(smem + (64 + t) * 16, make_uint4(7, 7, 7, 7));
  __syncthreads();
  for (int group = 0; group < 2; group++) {
    const int i = group * 64 + t;
    cp_async16(smem + i * 16, x + i, valid[i] != 0);
    cp_async_commit();
  }
  cp_async_wait<1>();
  __syncthreads();
  y[t] = lds128(smem + other * 16);
  cp_async_wait<0>();
  __syncthreads();
  y[64 + t] = lds128(smem + (64 + other) * 16);
}
EXPORT_KERNEL(probe_cp_async)

// ---- 16-byte accesses: x [2, 32], the first as words and the second as floats; y in the order of other lanes -----

extern "C" __global__ void __launch_bounds__(32) probe_shared128(const uint4* x, uint4* y) {
  DYN_SMEM(smem);
  const int t = threadIdx.x, other = 31 - t;
  sts128(smem + t * 16, x[t]);
  sts128(smem + 512 + t * 16, reinterpret_cast<const float4*>(x)[32 + t]);
  __syncwarp();
  y[t] = lds128(smem + other * 16);
  reinterpret_cast<float4*>(y)[32 + t] = lds128_f32(smem + 512 + other * 16);
}
EXPORT_KERNEL(probe_shared128)

// ---- functions of one or two floats ------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(128) probe_exp2(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = exp2_approx(x[i]);
}
EXPORT_KERNEL(probe_exp2)

extern "C" __global__ void __launch_bounds__(128) probe_tf32(const float* x, unsigned* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = to_tf32(x[i]);
}
EXPORT_KERNEL(probe_tf32)

// x [n, 2]; y [n, 2]: both halves as f16, and as bf16
extern "C" __global__ void __launch_bounds__(128) probe_pack(const float* x, unsigned* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[2 * i] = pack_f16x2(x[2 * i], x[2 * i + 1]);
  y[2 * i + 1] = pack_bf16x2(x[2 * i], x[2 * i + 1]);
}
EXPORT_KERNEL(probe_pack)

// x [n] to elements and back: f16 and bf16 [n], and what these are as floats
extern "C" __global__ void __launch_bounds__(128)
    probe_elements(const float* x, __half* f16, __nv_bfloat16* bf16, float* f16_back, float* bf16_back, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  store(f16 + i, x[i]);
  store(bf16 + i, x[i]);
  f16_back[i] = load(f16 + i);
  bf16_back[i] = load(bf16 + i);
}
EXPORT_KERNEL(probe_elements)

// ---- warps: x [64] of two warps; y [8, 64] ------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(64) probe_warp(const float* x, float* y) {
  const int t = threadIdx.x, lane = t & 31;
  const unsigned full = 0xffffffffu;
  y[t] = warp_sum(x[t]);
  y[64 + t] = warp_max(x[t]);
  y[128 + t] = __shfl_xor_sync(full, x[t], 5);
  y[192 + t] = __shfl_sync(full, x[t], (lane * 7) & 31);
  y[256 + t] = __shfl_up_sync(full, x[t], 3);
  y[320 + t] = __uint_as_float(__ballot_sync(full, x[t] > 0));
  float half = 0;  // lanes of one half alone, while the others do something else
  if (lane & 16) {
    half = __shfl_xor_sync(0xffff0000u, x[t], 1);
  } else {
    half = -x[t];
  }
  y[384 + t] = half;
  y[448 + t] = (float)__popc(__ballot_sync(full, x[t] < 1));
}
EXPORT_KERNEL(probe_warp)

// ---- barriers ------------------------------------------------------------------------------------------------------

// Two pairs of warps, each with a barrier of its own: sums [4, 32] of what the other warp of the pair wrote. turns: how
// often, a different number for each pair.
extern "C" __global__ void __launch_bounds__(128) probe_named_barrier(const int* turns, int* sums) {
  DYN_SMEM(smem);
  volatile int* words = reinterpret_cast<volatile int*>(smem);
  const int t = threadIdx.x, pair = t / 64;
  int sum = 0;
  for (int turn = 0; turn < turns[pair]; turn++) {
    words[t] = turn * 1000 + t;
    named_barrier(1 + pair, 64);
    sum += words[t ^ 32];
    named_barrier(1 + pair, 64);
  }
  sums[t] = sum;
}
EXPORT_KERNEL(probe_named_barrier)

// Each block hands its number on to the next one, rounds times; words and sums are [grid]. A cooperative launch.
extern "C" __global__ void __launch_bounds__(64) probe_grid_sync(volatile int* words, int* sums, int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; round++) {
    if (threadIdx.x == 63) words[blockIdx.x] = round * 100 + blockIdx.x;
    grid_sync();
    sum += words[(blockIdx.x + 1) % gridDim.x];
    grid_sync();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
EXPORT_KERNEL(probe_grid_sync)

// ---- atomics on shared memory: a histogram [8] of keys [n], and of 64-bit weights that pass 2^32 ------------------

extern "C" __global__ void __launch_bounds__(96)
    probe_atomics(const int* keys, unsigned* counts, unsigned long long* weights, int n) {
  DYN_SMEM(smem);
  unsigned long long* weight = reinterpret_cast<unsigned long long*>(smem);
  unsigned* count = reinterpret_cast<unsigned*>(smem + 64);
  const int t = threadIdx.x;
  if (t < 8) weight[t] = 0, count[t] = 0;
  __syncthreads();
  for (int i = t; i < n; i += blockDim.x) {
    atomicAdd(&count[keys[i]], 1u);
    atomicAdd(&weight[keys[i]], 0x40000001ull * (i + 1));
  }
  __syncthreads();
  if (t < 8) counts[t] = count[t], weights[t] = weight[t];
}
EXPORT_KERNEL(probe_atomics)
