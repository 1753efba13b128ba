// Kernels with bugs, which the emulator must report; and right ones that use every wrapper once.
#include "gpu.cuh"

// ---- bugs: each is right if `bug` is 0 ----

/** y[i] = x of the next thread, through shared memory; the barrier between write and read is missing. */
extern "C" __global__ void planted_no_barrier(float* y, int bug) {
  DYN_SMEM(smem);
  float* s = reinterpret_cast<float*>(smem);
  s[threadIdx.x] = (float)threadIdx.x;
  if (!bug) __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 1) % blockDim.x];
}
EXPORT_KERNEL(planted_no_barrier)

/** Two rounds through one buffer; the barrier between reading and writing again is missing. */
extern "C" __global__ void planted_no_second_barrier(float* y, int bug) {
  DYN_SMEM(smem);
  float* s = reinterpret_cast<float*>(smem);
  float sum = 0.f;
  for (int round = 0; round < 2; round++) {
    s[threadIdx.x] = (float)(threadIdx.x + 1000 * round);
    __syncthreads();
    sum += s[(threadIdx.x + 1) % blockDim.x];
    if (!bug) __syncthreads();
  }
  y[threadIdx.x] = sum;
}
EXPORT_KERNEL(planted_no_second_barrier)

extern "C" __global__ void planted_divergent_barrier(float* y, int bug) {
  if (bug && threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1.f;
}
EXPORT_KERNEL(planted_divergent_barrier)

/** Half of a warp shuffles with a full mask, the other half has left. */
extern "C" __global__ void planted_missing_lane(float* y, int bug) {
  if (bug && threadIdx.x % 32 >= 16) return;
  float v = __shfl_xor_sync(0xffffffffu, (float)threadIdx.x, 1);
  y[threadIdx.x] = v;
}
EXPORT_KERNEL(planted_missing_lane)

extern "C" __global__ void planted_divergent_warp(float* y, int bug) {
  float v = (float)threadIdx.x;
  if (bug && threadIdx.x < 16) {
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  } else {
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  }
  y[threadIdx.x] = v;
}
EXPORT_KERNEL(planted_divergent_warp)

/** A warp waits at a barrier, the other in a named one of 64 threads: neither opens. */
extern "C" __global__ void planted_deadlock(float* y, int bug) {
  if (bug && threadIdx.x < 32) {
    named_barrier(1, 64);
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1.f;
}
EXPORT_KERNEL(planted_deadlock)

extern "C" __global__ void planted_spin(unsigned* y, int bug) {
  while (bug && atomicAdd(y, 0u) != 77u) __nanosleep(10);
  y[threadIdx.x] = 1u;
}
EXPORT_KERNEL(planted_spin)

/** Reads or writes `offset` bytes into shared memory in the way that `how` names. */
extern "C" __global__ void planted_shared_access(float* y, int offset, int how) {
  DYN_SMEM(smem);
  unsigned char* p = smem + offset;
  if (how != 4 && threadIdx.x > 0) return;
  if (how == 0) y[threadIdx.x] = lds128_f32(p).x;
  if (how == 1) sts128(p, make_float4(1.f, 2.f, 3.f, 4.f));
  if (how == 2) cp_async16(p, y, true);
  if (how == 3) *reinterpret_cast<volatile float*>(p) = 1.f;
  unsigned r[4];
  if (how == 4) ldmatrix_x4(r, p);
}
EXPORT_KERNEL(planted_shared_access)

extern "C" __global__ void planted_global_access(float* y, long long offset, int store) {
  volatile float* p = y + offset;
  if (store) *p = 1.f;
  else y[0] = *p;
}
EXPORT_KERNEL(planted_global_access)

/** Two copies in two groups, of which the second is used after a wait that leaves one pending. */
extern "C" __global__ void planted_wait(const float* x, float* y, int bug) {
  DYN_SMEM(smem);
  const float* s = reinterpret_cast<const float*>(smem);
  unsigned char* mine = smem + threadIdx.x * 32;
  cp_async16(mine, x + threadIdx.x * 8, true);
  cp_async_commit();
  cp_async16(mine + 16, x + threadIdx.x * 8 + 4, true);
  cp_async_commit();
  if (bug) cp_async_wait<1>();
  else cp_async_wait<0>();
  __syncthreads();
  for (unsigned i = threadIdx.x; i < blockDim.x * 8; i += blockDim.x) y[i] = s[i];
}
EXPORT_KERNEL(planted_wait)

/** Blocks write the same word. */
extern "C" __global__ void planted_block_race(float* y, int bug) {
  if (threadIdx.x == 0) y[bug ? 0 : blockIdx.x] = (float)blockIdx.x;
}
EXPORT_KERNEL(planted_block_race)

// ---- right kernels ----

/** out[lane] of each collective, one row of 32 each. */
extern "C" __global__ void planted_warp(int* out) {
  int lane = threadIdx.x, row = 0;
  auto put = [&](int v) { out[row++ * 32 + lane] = v; };
  put(__shfl_sync(0xffffffffu, lane, 5));
  put(__shfl_sync(0xffffffffu, lane, 1, 8));
  put(__shfl_up_sync(0xffffffffu, lane, 3));
  put(__shfl_up_sync(0xffffffffu, lane, 3, 8));
  put(__shfl_down_sync(0xffffffffu, lane, 3));
  put(__shfl_down_sync(0xffffffffu, lane, 3, 8));
  put(__shfl_xor_sync(0xffffffffu, lane, 6));
  put(__shfl_xor_sync(0xffffffffu, lane, 6, 4));
  put((int)__ballot_sync(0xffffffffu, lane % 3 == 0));
  put(__any_sync(0xffffffffu, lane == 7) * 2 + __all_sync(0xffffffffu, lane < 32));
  put(__any_sync(0xffffffffu, lane == 40) * 2 + __all_sync(0xffffffffu, lane < 31));
  if (lane < 16) put(__shfl_xor_sync(0x0000ffffu, lane, 1));
}
EXPORT_KERNEL(planted_warp)

extern "C" __global__ void planted_counts(int* out) {
  int i = threadIdx.x;
  out[i * 3] = __syncthreads_count(i % 4 == 1);
  out[i * 3 + 1] = __syncthreads_or(i == 65);
  out[i * 3 + 2] = __syncthreads_and(i != 65);
}
EXPORT_KERNEL(planted_counts)

/** D = A B + C for one 16 x 8 tile. type 0: f16 from shared memory by ldmatrix, 1: bf16, 2: tf32 (K = 8). */
extern "C" __global__ void planted_mma(const float* A, const float* B, float* D, int type) {
  DYN_SMEM(smem);
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  float d[4] = {D[g * 8 + 2 * t], D[g * 8 + 2 * t + 1], D[(g + 8) * 8 + 2 * t], D[(g + 8) * 8 + 2 * t + 1]};
  unsigned a[4];
  if (type == 0) {
    __half* sA = reinterpret_cast<__half*>(smem);  // [16, 16]
    __half* sB = sA + 256;                         // [16, 8 of 16]: rows of k
    for (int i = lane; i < 256; i += 32) sA[i] = __float2half_rn(A[i]);
    for (int i = lane; i < 256; i += 32) sB[i] = __float2half_rn(i % 16 < 8 ? B[i / 16 * 8 + i % 16] : 0.f);
    __syncwarp();
    unsigned b[4];
    int matrix = lane / 8, r = lane % 8;
    ldmatrix_x4(a, sA + ((matrix & 1) * 8 + r) * 16 + (matrix >> 1) * 8);
    ldmatrix_x4_trans(b, sB + ((matrix & 1) * 8 + r) * 16 + (matrix >> 1) * 8);
    mma_m16n8k16_f16(d, a, b[0], b[1]);
  } else if (type == 1) {
    auto pair = [](float lo, float hi) { return pack_bf16x2(lo, hi); };
    for (int r = 0; r < 4; r++) {
      const float* p = A + (g + (r & 1) * 8) * 16 + 2 * t + (r >> 1) * 8;
      a[r] = pair(p[0], p[1]);
    }
    mma_m16n8k16_bf16(d, a, pair(B[2 * t * 8 + g], B[(2 * t + 1) * 8 + g]),
                      pair(B[(2 * t + 8) * 8 + g], B[(2 * t + 9) * 8 + g]));
  } else {
    for (int r = 0; r < 4; r++) a[r] = to_tf32(A[(g + (r & 1) * 8) * 8 + t + (r >> 1) * 4]);
    mma_m16n8k8_tf32(d, a, to_tf32(B[t * 8 + g]), to_tf32(B[(t + 4) * 8 + g]));
  }
  D[g * 8 + 2 * t] = d[0];
  D[g * 8 + 2 * t + 1] = d[1];
  D[(g + 8) * 8 + 2 * t] = d[2];
  D[(g + 8) * 8 + 2 * t + 1] = d[3];
}
EXPORT_KERNEL(planted_mma)

/** 16-byte reads of one warp, lanes `stride` bytes apart. */
extern "C" __global__ void planted_conflicts(float* y, int stride) {
  DYN_SMEM(smem);
  float4 v = lds128_f32(smem + threadIdx.x * stride);
  y[threadIdx.x] = v.x;
}
EXPORT_KERNEL(planted_conflicts)

/** Every block adds up what all blocks wrote before the grid barrier. */
extern "C" __global__ void planted_grid(int* values, int* sums) {
  if (threadIdx.x == 0) values[blockIdx.x] = (int)blockIdx.x + 1;
  grid_sync();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += values[i];
    sums[blockIdx.x] = sum;
  }
}
EXPORT_KERNEL(planted_grid)

/** The last block to arrive adds up what the others wrote: the pattern of split reductions. */
extern "C" __global__ void planted_last_block(int* values, unsigned* arrived, int* sum) {
  if (threadIdx.x != 0) return;
  values[blockIdx.x] = (int)blockIdx.x + 1;
  __threadfence();
  if (atomicAdd(arrived, 1u) + 1 < gridDim.x) return;
  __threadfence();
  int s = 0;
  for (unsigned i = 0; i < gridDim.x; i++) s += values[i];
  *sum = s;
}
EXPORT_KERNEL(planted_last_block)
