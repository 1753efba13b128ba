// Token and position embedding: x[r] = wte[ids[r]] + wpe[positions[r]].
//
// An id or a position that the tables lack gives a row of NaN, which no sampler lets pass: ids may have
// come from the device, where the host cannot check them.
//
// Kernels: embedding_v0_any, for all elements; embedding_v1_<tables> writes x in the tables' element,
// embedding_v1_<tables>_f32 in f32.
#include "element.cuh"

// v0. One thread an element: the definition, written down. Grid (R, ceil(C / threads)).
// Limits: none. Gain: the yardstick; not yet measured.
extern "C" __global__ void __launch_bounds__(256)
    embedding_v0_any(const int* ids,                // [R]
                     const int* positions,          // [R]
                     const void* __restrict__ wte,  // [V, C]
                     const void* __restrict__ wpe,  // [P, C]
                     void* x,                       // [R, C]
                     int V, int P, int C, int table, int element) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  const int c = blockIdx.y * blockDim.x + threadIdx.x, id = ids[row], position = positions[row];
  if (c >= C) return;
  float sum = NAN;
  if (id >= 0 && id < V && position >= 0 && position < P) {
    sum = load(wte, (size_t)id * C + c, table) + load(wpe, (size_t)position * C + c, table);
  }
  store(x, row * C + c, element, sum);
}
EXPORT_KERNEL(embedding_v0_any)

// v1. One block a row; each thread adds 8 elements, 16 bytes a load, and goes on by the block's width.
// Where C is no multiple of 8, rows don't start at multiples of 16 bytes, and elements go one by one.
// Limits: none. Gain: not yet measured.
template <class E, class X>
__device__ __forceinline__ void embedding_v1(const int* ids,             // [R]
                                             const int* positions,       // [R]
                                             const E* __restrict__ wte,  // [V, C]
                                             const E* __restrict__ wpe,  // [P, C]
                                             X* x,                       // [R, C]
                                             int V, int P, int C) {
  wait_for_previous();
  const size_t row = blockIdx.x;
  const int id = ids[row], position = positions[row];
  const bool known = id >= 0 && id < V && position >= 0 && position < P;
  const E* token = wte + (size_t)(known ? id : 0) * C;
  const E* place = wpe + (size_t)(known ? position : 0) * C;
  x += row * C;
  const int step = C % 8 == 0 ? 8 : 1;
  for (int c = threadIdx.x * step; c < C; c += blockDim.x * step) {
    if (step == 8) {
      float a[8], b[8];
      load8(token + c, a);
      load8(place + c, b);
#pragma unroll
      for (int i = 0; i < 8; i++) a[i] = known ? a[i] + b[i] : NAN;
      store8(x + c, a);
    } else {
      store(x + c, known ? load(token + c) + load(place + c) : NAN);
    }
  }
}

#define EMBEDDING(suffix, E, X)                                                               \
  extern "C" __global__ void __launch_bounds__(256) embedding_v1_##suffix(                    \
      const int* ids, const int* positions, const E* __restrict__ wte,                        \
      const E* __restrict__ wpe, X* x, int V, int P, int C) {                                 \
    embedding_v1(ids, positions, wte, wpe, x, V, P, C);                                       \
  }                                                                                           \
  EXPORT_KERNEL(embedding_v1_##suffix)

EMBEDDING(f32, float, float)
EMBEDDING(f16, __half, __half)
EMBEDDING(bf16, __nv_bfloat16, __nv_bfloat16)
EMBEDDING(f16_f32, __half, float)
EMBEDDING(bf16_f32, __nv_bfloat16, float)
