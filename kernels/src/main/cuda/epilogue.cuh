// What becomes of the sums of a linear map, out = x . W^T + b: the last step of linear.cu and gemv.cu.
//
// Each epilogue is a value with put<N>(row, col, sums): N = 1, or N = 4 columns from a multiple of 4 on
// where vectors() allows it. A kernel that has one sum to wait for gets what stands beside it first, with
// beside(row, col), and hands it to put(row, col, sum, beside). The kind of epilogue is a template parameter. The activation and the
// element of the result are not: they are the same for the whole grid and are looked at once for 4
// results, each of them `in` multiply-adds, and would else make eighteen kernels of every one.
#pragma once
#include "element.cuh"

// One element at `at`, or four from there on, `at` then a multiple of 4.
template <int N>
__device__ __forceinline__ void put_element(void* to, size_t at, int element, const float (&v)[N]) {
  if constexpr (N == 1) {
    store(to, at, element, v[0]);
  } else if (element == F32) {
    store4(static_cast<float*>(to) + at, make_float4(v[0], v[1], v[2], v[3]));
  } else if (element == F16) {
    store4(static_cast<__half*>(to) + at, make_float4(v[0], v[1], v[2], v[3]));
  } else {
    store4(static_cast<__nv_bfloat16*>(to) + at, make_float4(v[0], v[1], v[2], v[3]));
  }
}

template <int N>
__device__ __forceinline__ void add(const float* p, float (&v)[N]) {
  if constexpr (N == 1) {
    v[0] += *p;
  } else {
    float x[N];
    load_floats(p, x);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] += x[i];
  }
}

template <int N>
__device__ __forceinline__ void add_bias(const float* bias, int col, float (&v)[N]) {
  if (bias != nullptr) add(bias + col, v);
}

__device__ __forceinline__ float bias_of(const float* bias, int col) {
  return bias != nullptr ? bias[col] : 0.0f;
}

// out = f(sum + b)
struct Output {
  const float* bias;  // [outputs], or null for none
  void* out;          // [R, outputs]
  int outputs;
  int element;     // of out
  int activation;  // ActivationKind

  __device__ __forceinline__ bool vectors() const { return outputs % 4 == 0; }

  struct Beside {
    float bias;
  };
  __device__ __forceinline__ Beside beside(int, int col) const { return {bias_of(bias, col)}; }
  __device__ __forceinline__ void put(int row, int col, float (&v)[1], const Beside& b) const {
    if (bias != nullptr) v[0] += b.bias;
    finish(row, col, v);
  }

  template <int N>
  __device__ __forceinline__ void put(int row, int col, float (&v)[N]) const {
    add_bias(bias, col, v);
    finish(row, col, v);
  }

  template <int N>
  __device__ __forceinline__ void finish(int row, int col, float (&v)[N]) const {
    if (activation != NO_ACTIVATION) {
#pragma unroll
      for (int i = 0; i < N; i++) v[i] = activate(activation, v[i]);
    }
    put_element(out, (size_t)row * outputs + col, element, v);
  }
};

// acc += sum + b: the residual stream, always f32
struct Residual {
  const float* bias;  // [outputs], or null for none
  float* acc;         // [R, outputs]
  int outputs;

  __device__ __forceinline__ bool vectors() const { return outputs % 4 == 0; }

  struct Beside {
    float bias, acc;
  };
  __device__ __forceinline__ Beside beside(int row, int col) const {
    return {bias_of(bias, col), acc[(size_t)row * outputs + col]};
  }
  __device__ __forceinline__ void put(int row, int col, float (&v)[1], const Beside& b) const {
    if (bias != nullptr) v[0] += b.bias;
    acc[(size_t)row * outputs + col] = v[0] + b.acc;
  }

  template <int N>
  __device__ __forceinline__ void put(int row, int col, float (&v)[N]) const {
    add_bias(bias, col, v);
    float* p = acc + (size_t)row * outputs + col;
    add(p, v);
    put_element(p, 0, F32, v);
  }
};

// qkv = sum + b, outputs = 3 C = 3 H D; the K and V parts also go to the cache, which saves reading
// them back. A row whose sequence or position lies outside the cache is not appended.
struct Qkv {
  const float* bias;    // [3C], or null for none
  void* qkv;            // [R, 3C]: q | k | v, each H heads of D
  void* keys;           // [S, H, capacity, D]
  void* values;         // [S, H, capacity, D]
  const int* sequence;  // [R]
  const int* position;  // [R]
  int outputs;
  int element;  // of qkv
  int sequences, heads, headDim, capacity;
  int cacheElement;

  __device__ __forceinline__ bool vectors() const { return true; }  // D is a multiple of 8

  struct Beside {
    float bias;
    int sequence, position;
  };
  __device__ __forceinline__ Beside beside(int row, int col) const {
    return {bias_of(bias, col), sequence[row], position[row]};
  }
  __device__ __forceinline__ void put(int row, int col, float (&v)[1], const Beside& b) const {
    if (bias != nullptr) v[0] += b.bias;
    finish(row, col, v, b.sequence, b.position);
  }

  template <int N>
  __device__ __forceinline__ void put(int row, int col, float (&v)[N]) const {
    add_bias(bias, col, v);
    finish(row, col, v, sequence[row], position[row]);
  }

  template <int N>
  __device__ __forceinline__ void finish(int row, int col, float (&v)[N], int s, int p) const {
    put_element(qkv, (size_t)row * outputs + col, element, v);
    const int width = heads * headDim;
    if (col < width) return;
    if (s < 0 || s >= sequences || p < 0 || p >= capacity) return;
    const bool value = col >= 2 * width;
    const int within = col - (value ? 2 : 1) * width, head = within / headDim;
    const size_t at = (((size_t)s * heads + head) * capacity + p) * headDim + within % headDim;
    put_element(value ? values : keys, at, cacheElement, v);
  }
};

// 4 sums from column col (a multiple of 4) on; columns from outputs on are left out.
template <class Epilogue>
__device__ __forceinline__ void put4(const Epilogue& epilogue, int row, int col, float (&sums)[4]) {
  if (epilogue.vectors()) {
    if (col < epilogue.outputs) epilogue.put(row, col, sums);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float one[1] = {sums[i]};
    if (col + i < epilogue.outputs) epilogue.put(row, col + i, one);
  }
}
