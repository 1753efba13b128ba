// What is done to each element by itself, or to two at one place: residual sums, activations, conversion.
//
// v0 of each: one thread an element, and one kernel for all elements, pointwise_v0_<operation>_any.
//
// The others: each thread takes 8 elements, 16 bytes a load; the last thread takes what is left one by
// one. All buffers start at multiples of 16 bytes.
// Elements are counted in 64 bits. Limits: none. Gain of the wide loads: not yet measured.
#include "element.cuh"

__device__ __forceinline__ long long place() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void __launch_bounds__(256)
    pointwise_v0_residual_any(void* __restrict__ x,        // [n], x += y
                              const void* __restrict__ y,  // [n]
                              long long n, int x_element, int y_element) {
  const long long i = place();
  if (i < n) store(x, i, x_element, load(x, i, x_element) + load(y, i, y_element));
}
EXPORT_KERNEL(pointwise_v0_residual_any)

extern "C" __global__ void __launch_bounds__(256)
    pointwise_v0_activate_any(const void* x,  // [n]
                              void* y,        // [n], may be x
                              long long n, int kind, int element) {
  const long long i = place();
  if (i < n) store(y, i, element, activate(kind, load(x, i, element)));
}
EXPORT_KERNEL(pointwise_v0_activate_any)

extern "C" __global__ void __launch_bounds__(256)
    pointwise_v0_convert_any(const void* __restrict__ x,  // [n]
                             void* __restrict__ y,        // [n]
                             long long n, int to, int from) {
  const long long i = place();
  if (i < n) store(y, i, to, load(x, i, from));
}
EXPORT_KERNEL(pointwise_v0_convert_any)

// Number of the first element of this thread.
__device__ __forceinline__ long long first() {
  return 8 * place();
}

// Kernels: pointwise_residual_<element>; pointwise_residual_f32_<y> where x is f32.
template <class X, class Y>
__device__ __forceinline__ void residual(X* __restrict__ x,        // [n], x += y
                                         const Y* __restrict__ y,  // [n]
                                         long long n) {
  const long long i = first();
  if (i + 8 <= n) {
    float a[8], b[8];
    load8(x + i, a);
    load8(y + i, b);
#pragma unroll
    for (int j = 0; j < 8; j++) a[j] += b[j];
    store8(x + i, a);
  } else {
    for (long long j = i; j < n; j++) store(x + j, load(x + j) + load(y + j));
  }
}

// Kernels: pointwise_activate_<element>. y may be x.
template <class E>
__device__ __forceinline__ void activation(const E* x,  // [n]
                                           E* y,        // [n]
                                           long long n, int kind) {
  const long long i = first();
  if (i + 8 <= n) {
    float a[8];
    load8(x + i, a);
#pragma unroll
    for (int j = 0; j < 8; j++) a[j] = activate(kind, a[j]);
    store8(y + i, a);
  } else {
    for (long long j = i; j < n; j++) store(y + j, activate(kind, load(x + j)));
  }
}

template <class X, class Y>
__device__ __forceinline__ void convert(const X* __restrict__ x,  // [n]
                                        Y* __restrict__ y,        // [n]
                                        long long n) {
  const long long i = first();
  if (i + 8 <= n) {
    float a[8];
    load8(x + i, a);
    store8(y + i, a);
  } else {
    for (long long j = i; j < n; j++) store(y + j, load(x + j));
  }
}

// Kernels: pointwise_convert_<x>; `to` is y's element.
template <class X>
__device__ __forceinline__ void convert_to(const X* x, void* y, long long n, int to) {
  switch (to) {
    case F32:
      return convert(x, static_cast<float*>(y), n);
    case F16:
      return convert(x, static_cast<__half*>(y), n);
    case BF16:
      return convert(x, static_cast<__nv_bfloat16*>(y), n);
  }
}

#define RESIDUAL(suffix, X, Y)                                                                  \
  extern "C" __global__ void __launch_bounds__(256) pointwise_residual_##suffix(X* x, const Y* y, \
                                                                               long long n) {   \
    residual(x, y, n);                                                                          \
  }                                                                                             \
  EXPORT_KERNEL(pointwise_residual_##suffix)

#define POINTWISE(suffix, E)                                                                 \
  RESIDUAL(suffix, E, E)                                                                     \
  extern "C" __global__ void __launch_bounds__(256) pointwise_activate_##suffix(             \
      const E* x, E* y, long long n, int kind) {                                             \
    activation(x, y, n, kind);                                                               \
  }                                                                                          \
  EXPORT_KERNEL(pointwise_activate_##suffix)                                                 \
  extern "C" __global__ void __launch_bounds__(256) pointwise_convert_##suffix(              \
      const E* x, void* y, long long n, int to) {                                            \
    convert_to(x, y, n, to);                                                                 \
  }                                                                                          \
  EXPORT_KERNEL(pointwise_convert_##suffix)

POINTWISE(f32, float)
POINTWISE(f16, __half)
POINTWISE(bf16, __nv_bfloat16)
RESIDUAL(f32_f16, float, __half)
RESIDUAL(f32_bf16, float, __nv_bfloat16)
