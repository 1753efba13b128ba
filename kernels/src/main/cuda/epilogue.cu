// The epilogues of linear maps by themselves, for sums that another library made: bias and activation,
// bias and residual, or q, k and v to their places. See epilogue.cuh.
//
// v0. One thread a sum. Kernels: epilogue_v0_any[_residual | _qkv].
//
// v1. A thread takes 4 columns of a row, 16 bytes a load where rows allow it. Kernels:
// epilogue_v1_f32[_residual | _qkv]. Gain: none by itself; it makes cuBLAS usable, whose product then costs one more reading and writing of [R, outputs], from the L2 cache at best.
#include "epilogue.cuh"

template <class Epilogue>
__device__ __forceinline__ void finish_v0(const float* __restrict__ sums,  // [R, outputs]
                                          int rows, const Epilogue& epilogue) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const int row = (int)(i / epilogue.outputs), col = (int)(i % epilogue.outputs);
  if (row >= rows) return;
  float sum[1] = {sums[i]};
  epilogue.put(row, col, sum);
}

template <class Epilogue>
__device__ __forceinline__ void finish_v1(const float* __restrict__ sums,  // [R, outputs]
                                          int rows, const Epilogue& epilogue) {
  const int outputs = epilogue.outputs, quads = (outputs + 3) / 4;
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const int row = (int)(i / quads), col = (int)(i % quads) * 4;
  if (row >= rows) return;
  const float* p = sums + (size_t)row * outputs + col;
  float v[4];
  if (outputs % 4 == 0) {
    load_floats(p, v);
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = col + j < outputs ? p[j] : 0.0f;
  }
  put4(epilogue, row, col, v);
}

#define EPILOGUE(version, name)                                                                      \
  extern "C" __global__ void __launch_bounds__(256) name(                                            \
      const float* __restrict__ sums, const float* __restrict__ bias, void* __restrict__ out,        \
      int rows, int outputs, int element, int activation) {                                          \
    finish_##version(sums, rows, Output{bias, out, outputs, element, activation});                   \
  }                                                                                                  \
  EXPORT_KERNEL(name)                                                                                \
  extern "C" __global__ void __launch_bounds__(256) name##_residual(                                 \
      const float* __restrict__ sums, const float* __restrict__ bias, float* __restrict__ acc,       \
      int rows, int outputs) {                                                                       \
    finish_##version(sums, rows, Residual{bias, acc, outputs});                                      \
  }                                                                                                  \
  EXPORT_KERNEL(name##_residual)                                                                     \
  extern "C" __global__ void __launch_bounds__(256) name##_qkv(                                      \
      const float* __restrict__ sums, const float* __restrict__ bias, void* __restrict__ qkv,        \
      int rows, int outputs, int element, void* __restrict__ keys, void* __restrict__ values,        \
      const int* __restrict__ sequence, const int* __restrict__ position, int sequences, int heads,  \
      int headDim, int capacity, int cacheElement) {                                                 \
    finish_##version(sums, rows,                                                                     \
                     Qkv{bias, qkv, keys, values, sequence, position, outputs, element, sequences,   \
                         heads, headDim, capacity, cacheElement});                                   \
  }                                                                                                  \
  EXPORT_KERNEL(name##_qkv)

EPILOGUE(v0, epilogue_v0_any)
EPILOGUE(v1, epilogue_v1_f32)
