// Linear maps of 1 to 8 rows, for decoding: out = x . W^T + b, x [R, in] f32, W [out, in].
//
// The idea. With so few rows every weight is used R times and never again: the time is that of reading
// W once. So: 16-byte loads of whole rows of W (why W is [out, in]: see linear.cu), x in shared memory,
// and enough warps at work at once to keep the memory busy whatever the shape.
//
// The unit of work is one row of W, or two of them for R = 4 and 8 to halve the reading of x, times a
// chunk of 512 along k, by one warp: each lane adds its own elements in ascending order, then the
// lanes are added by a tree of xor-shuffles. A block shares the units of a few outputs among its
// warps; the chunks' sums meet in shared memory and one thread adds them in ascending order. This is a
// split of k with an ordered second step, without a second launch.
//
// So the bits of a result depend on its row of x, its row of W and its bias: not on R, the grid, the
// number of warps or the rows beside it. Which lane adds which element depends on the element of W.
//
// int8: w = scale q, one f32 scale for each group of 64 along k, the last group of a row perhaps
// shorter. The 16 products of a lane's load are added first and scaled once. x stays f32.
//
// That is v1. v0 has no idea at all: one thread an output.
//
// Kernels: gemv_v1_<element of W>[_r<R>][_residual | _qkv], R = 2, 4, 8, and 1 without an ending; fewer
// rows leave the last ones empty. gemv_v0_any[_residual | _qkv], for all elements. Epilogues: epilogue.cuh.
// Limits of v1: rows of W are multiples of 16 bytes. Gain over linear_v3: not yet measured.
#include "epilogue.cuh"

constexpr int CHUNK = 512;          // elements of a unit of summation, a multiple of GROUP
constexpr int GROUP = 64;           // int8 weights under one scale
constexpr int STAGE_FLOATS = 8192;  // of x in shared memory at a time: 32 KB
constexpr int GEMV_THREADS = 256, WARPS = GEMV_THREADS / 32;

// v0. The definition, written down: one thread an output, which adds along k, one fma after another; a
// weight of int8 is scaled before it is multiplied. Grid (ceil(outputs / threads), R).
// Limits: none. Every thread reads a row of W for itself, far from those of its neighbours.
template <class Epilogue>
__device__ __forceinline__ void gemv_v0(
    const float* __restrict__ x,       // [R, in]
    const void* __restrict__ w,        // [out, in] of `weight`
    const float* __restrict__ scales,  // [out, ceil(in / GROUP)] for int8
    int weight, int in, const Epilogue& epilogue) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (col >= epilogue.outputs) return;
  float sum[1] = {0.0f};
  for (int k = 0; k < in; k++) {
    float wk = load(w, (size_t)col * in + k, weight);
    if (weight == I8) wk *= scales[(size_t)col * ((in + GROUP - 1) / GROUP) + k / GROUP];
    sum[0] = fmaf(x[(size_t)row * in + k], wk, sum[0]);
  }
  epilogue.put(row, col, sum);
}

// Blocks that shall fit a multiprocessor: as many as the registers of R rows allow without spilling.
constexpr int gemv_blocks(int r) { return r == 8 ? 2 : r == 4 ? 3 : 4; }

// 16 bytes of weights, widened 4 at a time.
__device__ __forceinline__ unsigned word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ __forceinline__ void widen4(float, const uint4& v, int, float (&w)[4]) {
  memcpy(w, &v, 16);
}

template <class E>  // __half, __nv_bfloat16
__device__ __forceinline__ void widen4(E, const uint4& v, int quad, float (&w)[4]) {
  const unsigned words[2] = {word(v, 2 * quad), word(v, 2 * quad + 1)};
  E e[4];
  memcpy(e, words, 8);
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = to_float(e[i]);
}

// The byte q + 128 as the last digits of 2^23 + q + 128: exact, and faster than converting.
__device__ __forceinline__ void widen4(signed char, const uint4& v, int quad, float (&w)[4]) {
  const unsigned biased = word(v, quad) ^ 0x80808080u;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const unsigned bits = 0x4b000000u | ((biased >> (8 * i)) & 0xffu);
    float f;
    memcpy(&f, &bits, 4);
    w[i] = f - 8388736.0f;
  }
}

template <int R, class W>
struct Gemv {
  static constexpr int PER_LOAD = 16 / (int)sizeof(W);  // elements of a lane's load
  static constexpr int SPAN = 32 * PER_LOAD;            // elements of a warp's load
  static constexpr int LOADS = CHUNK / SPAN;
  static constexpr int QUADS = PER_LOAD / 4;
  static constexpr int ROWS = R >= 4 ? 2 : 1;           // of W, in a unit
  static constexpr int OUTPUTS = 4 * ROWS;              // of a block at a time
  static constexpr int STAGE_CHUNKS = STAGE_FLOATS / CHUNK / R;
  static constexpr bool SCALED = sizeof(W) == 1;

  // Where the 4 elements of x from k on lie within their chunk: quad q of all lanes' loads together,
  // so that the lanes' 16-byte reads are consecutive; the xor spreads the writes, which go along k.
  static __device__ __forceinline__ int place(int k) {
    const int load = k / SPAN, lane = k % SPAN / PER_LOAD, quad = k % PER_LOAD / 4;
    return load * SPAN + quad * 128 + place_in_quad(lane, quad);
  }
  static __device__ __forceinline__ int place_in_quad(int lane, int quad) {
    return (lane ^ (quad * (8 / QUADS))) * 4;
  }

  // The weights of a unit, on their way.
  struct Weights {
    uint4 w[ROWS][LOADS];
    float scale[ROWS][LOADS];
  };

  static __device__ __forceinline__ void fetch(
      Weights& to, const W* w, const float* scales, int output, int outputs, int chunk, int in) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int o = 0; o < ROWS; o++)
#pragma unroll
      for (int i = 0; i < LOADS; i++) {
        const int k = chunk * CHUNK + i * SPAN + lane * PER_LOAD;
        const bool inside = output + o < outputs && k < in;
        const size_t row = output + o;
        to.w[o][i] = inside ? *reinterpret_cast<const uint4*>(w + row * in + k) : make_uint4(0, 0, 0, 0);
        if constexpr (SCALED) {
          to.scale[o][i] = inside ? scales[row * ((in + GROUP - 1) / GROUP) + k / GROUP] : 0.0f;
        }
      }
  }

  // sums[o][r] = row o of the unit . row r of x, over the chunk; all lanes have them.
  static __device__ __forceinline__ void multiply(
      float (&sums)[ROWS][R], const Weights& from, const float* xs, int rowFloats) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      float part[ROWS][R];
#pragma unroll
      for (int o = 0; o < ROWS; o++)
#pragma unroll
        for (int r = 0; r < R; r++) part[o][r] = SCALED || i == 0 ? 0.0f : sums[o][r];
#pragma unroll
      for (int q = 0; q < QUADS; q++) {
        float w[ROWS][4];
#pragma unroll
        for (int o = 0; o < ROWS; o++) widen4(W(), from.w[o][i], q, w[o]);
#pragma unroll
        for (int r = 0; r < R; r++) {
          const float4 x = lds128_f32(xs + r * rowFloats + i * SPAN + q * 128 + place_in_quad(lane, q));
#pragma unroll
          for (int o = 0; o < ROWS; o++) {
            float p = fmaf(w[o][0], x.x, part[o][r]);
            p = fmaf(w[o][1], x.y, p);
            p = fmaf(w[o][2], x.z, p);
            part[o][r] = fmaf(w[o][3], x.w, p);
          }
        }
      }
#pragma unroll
      for (int o = 0; o < ROWS; o++)
#pragma unroll
        for (int r = 0; r < R; r++) {
          if constexpr (SCALED) {
            sums[o][r] = i == 0 ? from.scale[o][i] * part[o][r]
                                : fmaf(from.scale[o][i], part[o][r], sums[o][r]);
          } else {
            sums[o][r] = part[o][r];
          }
        }
    }
#pragma unroll
    for (int o = 0; o < ROWS; o++)
#pragma unroll
      for (int r = 0; r < R; r++) sums[o][r] = warp_sum(sums[o][r]);
  }

  // Chunks first .. first + chunks - 1 of x; zero beyond its rows and their ends.
  static __device__ __forceinline__ void stage(
      float* xs, const float* x, int rows, int in, int first, int chunks) {
    const int quads = chunks * (CHUNK / 4);
    for (int i = threadIdx.x; i < R * quads; i += GEMV_THREADS) {
      const int r = i / quads, k = i % quads * 4, from = first * CHUNK + k;
      float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (r < rows && from < in) v = *reinterpret_cast<const float4*>(x + (size_t)r * in + from);
      sts128(xs + (r * chunks + k / CHUNK) * CHUNK + place(k % CHUNK), v);
    }
  }

  template <class Epilogue>
  static __device__ __forceinline__ void run(
      const float* __restrict__ x,       // [R, in]
      const W* __restrict__ w,           // [out, in]
      const float* __restrict__ scales,  // [out, ceil(in / GROUP)] for int8
      int rows, int in, const Epilogue& epilogue) {
    DYN_SMEM(smem);
    const int allChunks = (in + CHUNK - 1) / CHUNK, stageChunks = min(allChunks, STAGE_CHUNKS);
    float* xs = reinterpret_cast<float*>(smem);    // [R, chunks, CHUNK]
    float* partial = xs + R * stageChunks * CHUNK;  // [R, OUTPUTS, stageChunks]
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, outputs = epilogue.outputs;
    const int o = threadIdx.x % OUTPUTS, r = threadIdx.x / OUTPUTS;  // the result a thread adds up
    bool staged = false;
    for (int out0 = blockIdx.x * OUTPUTS; out0 < outputs; out0 += gridDim.x * OUTPUTS) {
      float total[1] = {0.0f};
      for (int first = 0; first < allChunks; first += stageChunks) {
        const int chunks = min(stageChunks, allChunks - first);
        const int units = OUTPUTS / ROWS * chunks;
        Weights weights;  // those of a warp's first unit are asked for before x is waited for
        int unit = warp;
        if (unit < units) {
          fetch(weights, w, scales, out0 + unit / chunks * ROWS, outputs, first + unit % chunks, in);
        }
        if (!staged || stageChunks < allChunks) stage(xs, x, rows, in, first, chunks);
        staged = true;
        __syncthreads();
        while (unit < units) {
          float sums[ROWS][R];
          multiply(sums, weights, xs + unit % chunks * CHUNK, chunks * CHUNK);
          float* to = partial + unit / chunks * ROWS * stageChunks + unit % chunks;
#pragma unroll
          for (int i = 0; i < ROWS * R; i++) {
            if (lane == i) to[(i / ROWS * OUTPUTS + i % ROWS) * stageChunks] = sums[i % ROWS][i / ROWS];
          }
          unit += WARPS;
          if (unit < units) {
            fetch(weights, w, scales, out0 + unit / chunks * ROWS, outputs, first + unit % chunks, in);
          }
        }
        __syncthreads();
        if (r < R) {
          for (int c = 0; c < chunks; c++) total[0] += partial[(r * OUTPUTS + o) * stageChunks + c];
        }
      }
      if (r < rows && out0 + o < outputs) epilogue.put(r, out0 + o, total);
    }
  }
};

#define GEMV_KERNELS(name, R, W)                                                                  \
  extern "C" __global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks(R)) gemv_v1_##name(          \
      const float* __restrict__ x, const W* __restrict__ w, const float* __restrict__ scales,     \
      const float* __restrict__ bias, void* __restrict__ out, int rows, int in, int outputs,      \
      int element, int activation) {                                                              \
    Gemv<R, W>::run(x, w, scales, rows, in, Output{bias, out, outputs, element, activation});     \
  }                                                                                               \
  EXPORT_KERNEL(gemv_v1_##name)                                                                   \
  extern "C" __global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks(R)) gemv_v1_##name##_residual( \
      const float* __restrict__ x, const W* __restrict__ w, const float* __restrict__ scales,     \
      const float* __restrict__ bias, float* __restrict__ acc, int rows, int in, int outputs) {   \
    Gemv<R, W>::run(x, w, scales, rows, in, Residual{bias, acc, outputs});                        \
  }                                                                                               \
  EXPORT_KERNEL(gemv_v1_##name##_residual)                                                        \
  extern "C" __global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks(R)) gemv_v1_##name##_qkv(    \
      const float* __restrict__ x, const W* __restrict__ w, const float* __restrict__ scales,     \
      const float* __restrict__ bias, void* __restrict__ qkv, int rows, int in, int outputs,      \
      int element, void* __restrict__ keys, void* __restrict__ values,                            \
      const int* __restrict__ sequence, const int* __restrict__ position, int sequences,          \
      int heads, int headDim, int capacity, int cacheElement) {                                   \
    Gemv<R, W>::run(x, w, scales, rows, in,                                                       \
                    Qkv{bias, qkv, keys, values, sequence, position, outputs, element,            \
                        sequences, heads, headDim, capacity, cacheElement});                      \
  }                                                                                               \
  EXPORT_KERNEL(gemv_v1_##name##_qkv)

#define GEMV_ROWS(element, W)              \
  GEMV_KERNELS(element, 1, W)              \
  GEMV_KERNELS(element##_r2, 2, W)         \
  GEMV_KERNELS(element##_r4, 4, W)         \
  GEMV_KERNELS(element##_r8, 8, W)

GEMV_ROWS(f32, float)
GEMV_ROWS(f16, __half)
GEMV_ROWS(bf16, __nv_bfloat16)
GEMV_ROWS(i8, signed char)

extern "C" __global__ void __launch_bounds__(GEMV_THREADS)
    gemv_v0_any(const float* __restrict__ x, const void* __restrict__ w,
                const float* __restrict__ scales, int weight, const float* __restrict__ bias,
                void* __restrict__ out, int /* rows: the grid */, int in, int outputs, int element,
                int activation) {
  gemv_v0(x, w, scales, weight, in, Output{bias, out, outputs, element, activation});
}
EXPORT_KERNEL(gemv_v0_any)

extern "C" __global__ void __launch_bounds__(GEMV_THREADS)
    gemv_v0_any_residual(const float* __restrict__ x, const void* __restrict__ w,
                         const float* __restrict__ scales, int weight,
                         const float* __restrict__ bias, float* __restrict__ acc,
                         int /* rows: the grid */, int in, int outputs) {
  gemv_v0(x, w, scales, weight, in, Residual{bias, acc, outputs});
}
EXPORT_KERNEL(gemv_v0_any_residual)

extern "C" __global__ void __launch_bounds__(GEMV_THREADS)
    gemv_v0_any_qkv(const float* __restrict__ x, const void* __restrict__ w,
                    const float* __restrict__ scales, int weight, const float* __restrict__ bias,
                    void* __restrict__ qkv, int /* rows: the grid */, int in, int outputs,
                    int element, void* __restrict__ keys, void* __restrict__ values,
                    const int* __restrict__ sequence, const int* __restrict__ position,
                    int sequences, int heads, int headDim, int capacity, int cacheElement) {
  gemv_v0(x, w, scales, weight, in,
          Qkv{bias, qkv, keys, values, sequence, position, outputs, element, sequences, heads,
              headDim, capacity, cacheElement});
}
EXPORT_KERNEL(gemv_v0_any_qkv)
