// What all kernel families share: elements in memory (f32, f16, bf16) with float in between,
// wide accesses, tensor-core steps by element, sums in a fixed order, and the activations.
#pragma once
#include "gpu.cuh"

#include <cstdint>
#include <cstring>

// ---- Elements. load/store convert one; storing rounds to nearest even.

// The element of a pointer to void, where it is known at run time only; numbered as in Element.java.
enum ElementCode { F32, F16, BF16, I8 };

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class E>
__device__ __forceinline__ E from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <class E>
__device__ __forceinline__ float load(const E* p) {
  return to_float(*p);
}
template <class E>
__device__ __forceinline__ void store(E* p, float x) {
  *p = from_float<E>(x);
}

__device__ __forceinline__ float load(const void* p, size_t i, int element) {
  switch (element) {
    case F32:
      return load(static_cast<const float*>(p) + i);
    case F16:
      return load(static_cast<const __half*>(p) + i);
    case BF16:
      return load(static_cast<const __nv_bfloat16*>(p) + i);
    default:
      return static_cast<const signed char*>(p)[i];
  }
}

__device__ __forceinline__ void store(void* p, size_t i, int element, float x) {
  if (element == F32) {
    store(static_cast<float*>(p) + i, x);
  } else if (element == F16) {
    store(static_cast<__half*>(p) + i, x);
  } else {
    store(static_cast<__nv_bfloat16*>(p) + i, x);
  }
}

// ---- 16 bytes at once: 4 f32 or 8 f16/bf16. The address must be a multiple of 16.

template <class E>
constexpr int per16 = 16 / (int)sizeof(E);

template <class E>
__device__ __forceinline__ void load16(const E* p, float (&x)[16 / sizeof(E)]) {
  uint4 bits = *reinterpret_cast<const uint4*>(p);
  E e[16 / sizeof(E)];
  memcpy(e, &bits, 16);
#pragma unroll
  for (int i = 0; i < per16<E>; i++) x[i] = to_float(e[i]);
}

template <class E>
__device__ __forceinline__ void store16(E* p, const float (&x)[16 / sizeof(E)]) {
  E e[16 / sizeof(E)];
#pragma unroll
  for (int i = 0; i < per16<E>; i++) e[i] = from_float<E>(x[i]);
  uint4 bits;
  memcpy(&bits, e, 16);
  *reinterpret_cast<uint4*>(p) = bits;
}

// 4 neighbours, from an address that is a multiple of four elements.
template <class E>
struct alignas(4 * sizeof(E)) Four {
  E e[4];
};

template <class E>
__device__ __forceinline__ float4 load4(const E* p) {
  const Four<E> v = *reinterpret_cast<const Four<E>*>(p);
  return make_float4(to_float(v.e[0]), to_float(v.e[1]), to_float(v.e[2]), to_float(v.e[3]));
}

template <class E>
__device__ __forceinline__ void store4(E* p, const float4& x) {
  const Four<E> v = {
      {from_float<E>(x.x), from_float<E>(x.y), from_float<E>(x.z), from_float<E>(x.w)}};
  *reinterpret_cast<Four<E>*>(p) = v;
}

// 8 elements, whatever the type: where elements of 2 and 4 bytes meet in one loop.
template <class E>
__device__ __forceinline__ void load8(const E* p, float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += per16<E>) {
    float part[16 / sizeof(E)];
    load16(p + i, part);
#pragma unroll
    for (int j = 0; j < per16<E>; j++) x[i + j] = part[j];
  }
}

template <class E>
__device__ __forceinline__ void store8(E* p, const float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += per16<E>) {
    float part[16 / sizeof(E)];
#pragma unroll
    for (int j = 0; j < per16<E>; j++) part[j] = x[i + j];
    store16(p + i, part);
  }
}

// n f32 from an address that is a multiple of 16 (n a multiple of 4): the weights beside a vector.
template <int N>
__device__ __forceinline__ void load_floats(const float* p, float (&x)[N]) {
  static_assert(N % 4 == 0, "whole vectors of 16 bytes");
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    float4 v = *reinterpret_cast<const float4*>(p + i);
    x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
  }
}

__device__ __forceinline__ bool aligned16(const void* p) {
  return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

// ---- Tensor cores: D [16, 8] += A [16, 16] B [16, 8], and two values of an operand in one register.

__device__ __forceinline__ void mma(
    float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, __half) {
  mma_m16n8k16_f16(d, a, b0, b1);
}
__device__ __forceinline__ void mma(
    float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, __nv_bfloat16) {
  mma_m16n8k16_bf16(d, a, b0, b1);
}
__device__ __forceinline__ unsigned pack(float lo, float hi, __half) { return pack_f16x2(lo, hi); }
__device__ __forceinline__ unsigned pack(float lo, float hi, __nv_bfloat16) {
  return pack_bf16x2(lo, hi);
}

// a b + c. nvcc fuses it, like a * b + c where it stands but unlike fmaf without keeping it from other
// choices. Named, and in parentheses, so that a macro of the tests' counting build can take its place.
__device__ __forceinline__ float (multiply_add)(float a, float b, float c) { return a * b + c; }

// ---- Reductions. All 32 lanes take part and all get the same bits; the order is fixed.

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {  // NaN is passed over, as in fmaxf
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

// Over a block of whole warps, one-dimensional. scratch: one float a warp, in shared memory, free for
// other use on return. The warps' results are taken in their order, by every thread for itself.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
  __syncthreads();
  float sum = scratch[0];
  for (unsigned w = 1; w < blockDim.x / 32; w++) sum += scratch[w];
  __syncthreads();
  return sum;
}

__device__ __forceinline__ float block_max(float x, float* scratch) {
  x = warp_max(x);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
  __syncthreads();
  float max = scratch[0];
  for (unsigned w = 1; w < blockDim.x / 32; w++) max = fmaxf(max, scratch[w]);
  __syncthreads();
  return max;
}

// ---- Activations, numbered as in Activation.java.

enum ActivationKind { NO_ACTIVATION, GELU_NEW, GELU, RELU, SILU, TANH, QUICK_GELU };

// x sigmoid(z); for z far below 0 the denominator is infinite and the result -0.
__device__ __forceinline__ float times_sigmoid(float x, float z) { return x / (1.0f + expf(-z)); }

__device__ __forceinline__ float activate(int kind, float x) {
  switch (kind) {
    case GELU_NEW:  // 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
      return times_sigmoid(x, 1.5957691216057308f * (0.044715f * x * x * x + x));
    case GELU:
      // erfc keeps the digits of the small results left of 0
      return 0.5f * x * erfcf(-0.70710678118654752f * x);
    case RELU:
      return x > 0.0f || x != x ? x : 0.0f;  // NaN stays NaN
    case SILU:
      return times_sigmoid(x, x);
    case TANH:
      return tanhf(x);
    case QUICK_GELU:
      return times_sigmoid(x, 1.702f * x);
    default:
      return x;
  }
}
