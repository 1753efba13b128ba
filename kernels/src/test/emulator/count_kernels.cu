// Kernels whose counts are known by hand, to test the counting build. All run one warp.
#include "gpu.cuh"

// x[lane * stride] for every lane, to y[lane]
extern "C" __global__ void count_global(const float* x, float* y, int stride) {
  y[threadIdx.x] = x[threadIdx.x * stride];
}
EXPORT_KERNEL(count_global)

// As count_global, 16 bytes a lane.
extern "C" __global__ void count_vector(const float4* x, float4* y, int stride) {
  y[threadIdx.x] = x[threadIdx.x * stride];
}
EXPORT_KERNEL(count_vector)

// Every lane writes `bytes` bytes (4, 8 or 16) of shared memory at lane * stride.
extern "C" __global__ void count_shared(int bytes, int stride) {
  DYN_SMEM(smem);
  unsigned char* p = smem + threadIdx.x * stride;
  if (bytes == 4) *reinterpret_cast<float*>(p) = 1.0f;
  if (bytes == 8) *reinterpret_cast<float2*>(p) = make_float2(1.0f, 2.0f);
  if (bytes == 16) *reinterpret_cast<float4*>(p) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
}
EXPORT_KERNEL(count_shared)

// One cp.async a lane, by the first `valid` lanes from x; one ldmatrix of rows `stride` bytes apart; one mma, and a
// fused multiply-add and an exponential by every second lane. never: null, so that nothing is dropped or written.
extern "C" __global__ void count_tensor(const float* x, int valid, int stride, float* never) {
  DYN_SMEM(smem);
  const int lane = threadIdx.x;
  cp_async16(smem + 16 * lane, lane < valid ? x + 4 * lane : x + 1024, lane < valid);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  unsigned a[4];
  float d[4] = {};
  ldmatrix_x4(a, smem + lane * stride);
  mma_m16n8k16_f16(d, a, a[0], a[1]);
  if (lane % 2 == 0) d[0] = fmaf(d[0], expf(d[1]), d[2]);
  if (never) *never = d[0];
}
EXPORT_KERNEL(count_tensor)

// At one place in the code, lane i reads i values, then all meet, then each reads x[0]: that is one request of the warp,
// whatever came before.
extern "C" __global__ void count_diverged(const float* x, float* never) {
  float sum = 0.0f;
  for (int round = 0; round < 2; round++) {
    const int reads = round == 0 ? (int)threadIdx.x : 1;
    for (int i = 0; i < reads; i++) sum += x[8 * i];
    __syncwarp();
  }
  if (never) *never = sum;
}
EXPORT_KERNEL(count_diverged)
