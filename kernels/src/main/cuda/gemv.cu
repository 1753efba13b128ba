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
// split of k with an ordered second step, without a second launch. A warp has asked for AHEAD units,
// 64 bytes a lane or more, while it multiplies one, those of the block's next outputs among them; bias,
// residual and place in the cache are asked for before the products. Where a launch may start early, the
// first weights are on their way before the kernel that writes x has ended.
//
// Where the layer norm of x comes before the product, each block makes it for itself while its weights
// are on their way, to the bit as layernorm_v3 does (norm.cuh): a launch, and x written and read, less.
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
// Limits of v1: rows of W are multiples of 16 bytes; with a norm, of 8 elements. Gain over linear_v3: not
// yet measured.
#include "epilogue.cuh"
#include "norm.cuh"

constexpr int CHUNK = 512;          // elements of a unit of summation, a multiple of GROUP
constexpr int GROUP = 64;           // int8 weights under one scale
constexpr int STAGE_FLOATS = 8192;  // of x in shared memory at a time: 32 KB
constexpr int GEMV_THREADS = 256, WARPS = GEMV_THREADS / 32;

// v0. The definition, written down: one thread an output, which adds along k, one fma after another; a
// weight of int8 is scaled before it is multiplied. Grid (ceil(outputs / threads), R).
// Limits: none. Every thread reads a row of W for itself, far from those of its neighbours.
template <class Epilogue>
__device__ __forceinline__ void gemv_v0(
    const float* x,                    // [R, in]
    const void* __restrict__ w,        // [out, in] of `weight`
    const float* __restrict__ scales,  // [out, ceil(in / GROUP)] for int8
    int weight, int in, const Epilogue& epilogue) {
  wait_for_previous();
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

// Blocks that shall fit a multiprocessor: as many as the registers of R rows, and of units on their way,
// allow without spilling. `bytes`: of an element of W.
constexpr int gemv_blocks(int r, int bytes) {
  if (r >= 4) return r == 4 && bytes == 2 ? 3 : 2;
  return r == 2 || bytes == 4 ? 3 : 4;
}

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

// What is normalised before it is multiplied: rows of x, by gamma and beta [in].
struct InputNorm {
  const float* gamma;  // null: x is taken as it is
  const float* beta;
  float eps;
};

// Of four columns.
struct Gain {
  float4 gamma, beta;
};

template <int R, class W>
struct Gemv {
  static constexpr int PER_LOAD = 16 / (int)sizeof(W);  // elements of a lane's load
  static constexpr int SPAN = 32 * PER_LOAD;            // elements of a warp's load
  static constexpr int LOADS = CHUNK / SPAN;
  static constexpr int QUADS = PER_LOAD / 4;
  static constexpr int ROWS = R >= 4 ? 2 : 1;  // of W, in a unit
  static constexpr int UNIT_BYTES = 16 * LOADS * ROWS;  // of a lane
  static constexpr int AHEAD = UNIT_BYTES < 64 ? 64 / UNIT_BYTES : 1;  // units on their way
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

  static __device__ __forceinline__ Gain gain(const InputNorm& norm, int k, int in) {
    if (norm.gamma == nullptr || k >= in) return {};
    return {load4(norm.gamma + k), load4(norm.beta + k)};
  }

  // Chunks first .. first + chunks - 1 of x, normalised; zero beyond its rows and their ends. `ahead`: the
  // gain of this thread's first columns, if it is there already.
  static __device__ __forceinline__ void stage(
      float* xs, const float* x, const InputNorm& norm, const RowNorm* of, const Gain* ahead, int rows,
      int in, int first, int chunks) {
#pragma unroll 1
    for (int k = threadIdx.x * 4; k < chunks * CHUNK; k += GEMV_THREADS * 4) {
      const int from = first * CHUNK + k;
      const Gain g = ahead != nullptr && k == (int)threadIdx.x * 4 ? *ahead : gain(norm, from, in);
#pragma unroll
      for (int r = 0; r < R; r++) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < rows && from < in) {
          v = load4(x + (size_t)r * in + from);
          if (norm.gamma != nullptr) {
            v.x = normalised(v.x, of[r], g.gamma.x, g.beta.x);
            v.y = normalised(v.y, of[r], g.gamma.y, g.beta.y);
            v.z = normalised(v.z, of[r], g.gamma.z, g.beta.z);
            v.w = normalised(v.w, of[r], g.gamma.w, g.beta.w);
          }
        }
        sts128(xs + (r * chunks + k / CHUNK) * CHUNK + place(k % CHUNK), v);
      }
    }
  }

  // A block's turn is ROWS << shift outputs. Its units are numbered along the rows of W first: the lowest
  // `shift` bits say which, those above which chunk, so that nothing is divided.
  template <class Epilogue>
  static __device__ __forceinline__ void run(
      const float* x,                    // [R, in]
      const W* __restrict__ w,           // [out, in]
      const float* __restrict__ scales,  // [out, ceil(in / GROUP)] for int8
      int shift, const InputNorm& norm, int rows, int in, const Epilogue& epilogue) {
    DYN_SMEM(smem);
    const int allChunks = (in + CHUNK - 1) / CHUNK, stageChunks = min(allChunks, STAGE_CHUNKS);
    const int turn = ROWS << shift, results = R * turn, outputs = epilogue.outputs;
    float* xs = reinterpret_cast<float*>(smem);                            // [R, chunks, CHUNK]
    float* partial = xs + R * stageChunks * CHUNK;                         // [stageChunks, R, turn]
    RowNorm* of = reinterpret_cast<RowNorm*>(partial + stageChunks * results);  // [R]
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int o = threadIdx.x & (turn - 1), r = threadIdx.x / ROWS >> shift;  // the result a thread adds up

    Weights weights[AHEAD];
    auto request = [&](Weights& to, int unit, int out0, int first) {
      if (unit < min(stageChunks, allChunks - first) << shift) {
        const int row = out0 + (unit & ((1 << shift) - 1)) * ROWS;
        fetch(to, w, scales, row, outputs, first + (unit >> shift), in);
      }
    };
    int out0 = blockIdx.x * turn, first = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) request(weights[i], warp + i * WARPS, out0, first);
    const Gain ahead = gain(norm, threadIdx.x * 4, in);
    wait_for_previous();  // weights do not change; all that follows may
    if (norm.gamma != nullptr) {
      if (warp < min(R, rows)) {
        auto read = [&](int k, float(&v)[8]) { load8(x + (size_t)warp * in + k, v); };
        const RowNorm row = norm_of(in, norm.eps, read, read);
        if (lane == 0) of[warp] = row;
      }
      __syncthreads();  // the rows' norms are there
    }
    float total[1] = {0.0f};
    typename Epilogue::Beside beside = {};
    if (out0 < outputs) stage(xs, x, norm, of, &ahead, rows, in, first, stageChunks);
    while (out0 < outputs) {
      const int chunks = min(stageChunks, allChunks - first);
      const bool mine = r < min(R, rows) && out0 + o < outputs;
      if (mine && first == 0) beside = epilogue.beside(r, out0 + o);
      __syncthreads();  // x is there
#pragma unroll 1
      for (int unit = warp; unit < chunks << shift; unit += AHEAD * WARPS) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
          const int at = unit + i * WARPS;
          if (at >= chunks << shift) break;
          float sums[ROWS][R];
          multiply(sums, weights[i], xs + (at >> shift) * CHUNK, chunks * CHUNK);
          request(weights[i], at + AHEAD * WARPS, out0, first);
          float* to = partial + (at >> shift) * results + (at & ((1 << shift) - 1)) * ROWS;
#pragma unroll
          for (int j = 0; j < ROWS * R; j++) {
            if (lane == j) to[j / ROWS * turn + j % ROWS] = sums[j % ROWS][j / ROWS];
          }
        }
      }
      const int done = out0;
      first += stageChunks;
      if (first >= allChunks) first = 0, out0 += gridDim.x * turn;
      if (out0 < outputs) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) request(weights[i], warp + i * WARPS, out0, first);
      }
      __syncthreads();  // the chunks' sums are
      if (stageChunks < allChunks && out0 < outputs) {
        stage(xs, x, norm, of, nullptr, rows, in, first, min(stageChunks, allChunks - first));
      }
      if (mine) {
        for (int c = 0; c < chunks; c++) total[0] += partial[c * results + threadIdx.x];
        if (first == 0) epilogue.put(r, done + o, total, beside);
      }
      if (first == 0) total[0] = 0.0f;
    }
  }
};

#define GEMV_KERNELS(name, R, W)                                                                  \
  extern "C" __global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks(R, sizeof(W)))           \
      gemv_v1_##name(                                                                             \
      const float* x, const W* __restrict__ w, const float* __restrict__ scales,                  \
      int shift, const float* __restrict__ gamma, const float* __restrict__ beta, float eps,      \
      const float* __restrict__ bias, void* out, int rows, int in, int outputs,                   \
      int element, int activation) {                                                              \
    Gemv<R, W>::run(x, w, scales, shift, InputNorm{gamma, beta, eps}, rows, in,                   \
                    Output{bias, out, outputs, element, activation});                             \
  }                                                                                               \
  EXPORT_KERNEL(gemv_v1_##name)                                                                   \
  extern "C" __global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks(R, sizeof(W)))           \
      gemv_v1_##name##_residual(                                                                  \
      const float* x, const W* __restrict__ w, const float* __restrict__ scales,                  \
      int shift, const float* __restrict__ bias, float* acc, int rows, int in,                    \
      int outputs) {                                                                              \
    Gemv<R, W>::run(x, w, scales, shift, InputNorm{}, rows, in, Residual{bias, acc, outputs});    \
  }                                                                                               \
  EXPORT_KERNEL(gemv_v1_##name##_residual)                                                        \
  extern "C" __global__ void __launch_bounds__(GEMV_THREADS, gemv_blocks(R, sizeof(W)))           \
      gemv_v1_##name##_qkv(                                                                       \
      const float* x, const W* __restrict__ w, const float* __restrict__ scales,                  \
      int shift, const float* __restrict__ gamma, const float* __restrict__ beta, float eps,      \
      const float* __restrict__ bias, void* qkv, int rows, int in, int outputs,                   \
      int element, void* keys, void* values,                                                      \
      const int* sequence, const int* position, int sequences,                                    \
      int heads, int headDim, int capacity, int cacheElement) {                                   \
    Gemv<R, W>::run(x, w, scales, shift, InputNorm{gamma, beta, eps}, rows, in,                   \
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
    gemv_v0_any(const float* x, const void* __restrict__ w,
                const float* __restrict__ scales, int weight, const float* __restrict__ bias,
                void* out, int /* rows: the grid */, int in, int outputs, int element,
                int activation) {
  gemv_v0(x, w, scales, weight, in, Output{bias, out, outputs, element, activation});
}
EXPORT_KERNEL(gemv_v0_any)

extern "C" __global__ void __launch_bounds__(GEMV_THREADS)
    gemv_v0_any_residual(const float* x, const void* __restrict__ w,
                         const float* __restrict__ scales, int weight,
                         const float* __restrict__ bias, float* acc,
                         int /* rows: the grid */, int in, int outputs) {
  gemv_v0(x, w, scales, weight, in, Residual{bias, acc, outputs});
}
EXPORT_KERNEL(gemv_v0_any_residual)

extern "C" __global__ void __launch_bounds__(GEMV_THREADS)
    gemv_v0_any_qkv(const float* x, const void* __restrict__ w,
                    const float* __restrict__ scales, int weight, const float* __restrict__ bias,
                    void* qkv, int /* rows: the grid */, int in, int outputs,
                    int element, void* keys, void* values,
                    const int* sequence, const int* position,
                    int sequences, int heads, int headDim, int capacity, int cacheElement) {
  gemv_v0(x, w, scales, weight, in,
          Qkv{bias, qkv, keys, values, sequence, position, outputs, element, sequences, heads,
              headDim, capacity, cacheElement});
}
EXPORT_KERNEL(gemv_v0_any_qkv)
