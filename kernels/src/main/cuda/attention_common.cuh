// What all versions of prefill attention share: the problem, its addresses, 4-wide loads and stores.
//
// For every row of the pass and every head:  s = scale * q . k over the keys that the mask admits,
// p = softmax(s), y = p . v, lse = ln sum exp(s). The rows come in segments: rows of one sequence,
// standing together, at ascending positions; their keys are in the cache already.
#pragma once
#include "element.cuh"

template <class E>
struct Prefill {
  const E* qkv;          // [R, 3C]: q in the first C columns, head h at columns h * D ..
  const E* keys;         // [S, H, capacity, D]
  const E* values;       // [S, H, capacity, D]
  const int4* segments;  // [n] {firstRow, rows, sequence, firstPosition}
  E* y;                  // [R, C]
  float* lse;            // [R, H]
  int H, D, capacity;
  float scale;
  int causal;  // 1: keys 0..position; 0: keys 0..firstPosition + rows - 1
};

#define PREFILL_PARAMETERS(E)                                                                     \
  const E *__restrict__ qkv, const E *__restrict__ keys, const E *__restrict__ values,            \
      const int4 *__restrict__ segments, E *__restrict__ y, float *__restrict__ lse, int H, int D, \
      int capacity, float scale, int causal
#define PREFILL(E) \
  Prefill<E> { qkv, keys, values, segments, y, lse, H, D, capacity, scale, causal }

// One segment as one head sees it. Rows count from the segment's first.
template <class E>
struct HeadSegment {
  const Prefill<E>& p;
  const int h, firstRow, rows, firstPosition, keyCount;
  const size_t cache;  // of the sequence's first key, in elements

  __device__ __forceinline__ HeadSegment(const Prefill<E>& p, const int4& s, int h)
      : p(p),
        h(h),
        firstRow(s.x),
        rows(s.y),
        firstPosition(s.w),
        keyCount(s.w + s.y),
        cache(((size_t)s.z * p.H + h) * p.capacity * p.D) {}

  __device__ __forceinline__ const E* q(int row) const {  // [D]
    return p.qkv + ((size_t)(firstRow + row) * (3 * p.H) + h) * p.D;
  }
  __device__ __forceinline__ const E* k(int key) const {  // [keyCount - key, D]
    return p.keys + cache + (size_t)key * p.D;
  }
  __device__ __forceinline__ const E* v(int key) const {  // [keyCount - key, D]
    return p.values + cache + (size_t)key * p.D;
  }
  __device__ __forceinline__ E* o(int row) const {  // [D]
    return p.y + ((size_t)(firstRow + row) * p.H + h) * p.D;
  }
  __device__ __forceinline__ float& lse(int row) const {
    return p.lse[(size_t)(firstRow + row) * p.H + h];
  }
  // The number of keys that a row may look at.
  __device__ __forceinline__ int visible(int row) const {
    return p.causal ? min(firstPosition + row + 1, keyCount) : keyCount;
  }
};

// Four neighbouring elements as floats; the address is a multiple of four elements.
template <class E>
__device__ __forceinline__ float4 load4(const E* p) {
  struct alignas(4 * sizeof(E)) Four {
    E x, y, z, w;
  };
  const Four v = *reinterpret_cast<const Four*>(p);
  return make_float4(to_float(v.x), to_float(v.y), to_float(v.z), to_float(v.w));
}

// Four neighbouring elements from floats, each times `factor`.
template <class E>
__device__ __forceinline__ void store4(E* p, const float* x, float factor) {
  struct alignas(4 * sizeof(E)) Four {
    E x, y, z, w;
  };
  const Four v = {from_float<E>(x[0] * factor), from_float<E>(x[1] * factor),
                  from_float<E>(x[2] * factor), from_float<E>(x[3] * factor)};
  *reinterpret_cast<Four*>(p) = v;
}
