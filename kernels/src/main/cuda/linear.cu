// Linear maps: out = x . W^T + b, with x [R, in], W [out, in], b [out], out [R, out]. Sums in f32.
//
// Why W is [out, in]. Each output is then one contiguous row of W. A decoding step (gemv.cu) streams
// whole rows in 16-byte loads, one warp a row, with no sum across blocks; the tensor-core version
// takes the same rows as they are, because mma.sync wants its second operand column by column, each
// column contiguous along k: ldmatrix without .trans. [in, out] (Hugging Face's Conv1D) would need a
// second copy of the weights for one of the two. So they are repacked once, when they are loaded.
//
// Kernels: linear_<version>_<element of W>[_x32][_residual | _qkv]. x has the element of W, or f32
// with _x32 (f32 needs no ending). Without an ending: bias and activation, out in f32 or x's element.
// The epilogues are in epilogue.cuh.
//
// A result depends on its row of x, its row of W and its bias alone, and every version adds along k in
// one fixed order: not on R, on the grid, nor on the rows beside it. v1, v2 and v3 add in the same
// order, one fma after another, and so give the same bits.
//
//   version | idea                                             | gain over the one before
//   v1      | one thread an output                             | -
//   v2      | 16 x 16 outputs share tiles of x and W            | not yet measured
//   v3      | 8 x 4 outputs a thread, in registers              | not yet measured
//   v4      | tensor cores, cp.async, swizzled shared memory    | not yet measured
#include "epilogue.cuh"
#include "linear_v4.cuh"

// ---- v1: one thread an output.
// Limits: none on the shape. Every thread reads two whole rows; x is shared by 32 threads, but the rows
// of W that a warp reads stand `in` apart, so each load touches 32 lines of memory.

constexpr int V1_COLS = 32, V1_ROWS = 8;  // a block's outputs; also its threads

template <class W, class X, class Epilogue>
__device__ __forceinline__ void linear_v1(
    const X* __restrict__ x,  // [R, in]
    const W* __restrict__ w,  // [out, in]
    int rows, int in, const Epilogue& epilogue) {
  const int col = blockIdx.x * V1_COLS + threadIdx.x;
  const int row = blockIdx.y * V1_ROWS + threadIdx.y;
  if (row >= rows || col >= epilogue.outputs) return;
  float sum[1] = {0.0f};
  for (int k = 0; k < in; k++) {
    sum[0] = fmaf(load(x + (size_t)row * in + k), load(w + (size_t)col * in + k), sum[0]);
  }
  epilogue.put(row, col, sum);
}

// ---- v2: tiles in shared memory.
// From v1: a block of 16 x 16 outputs brings 16 rows of x and of W, 32 of k at a time, into shared
// memory, each element read from memory once instead of 16 times, and along k, so that loads are whole lines.
// Limits: none on the shape. Two shared loads for one fma: bound by shared memory.

constexpr int V2_TILE = 16, V2_K = 32;
constexpr int V2_PITCH = V2_K + 1;  // rows one bank apart: 16 threads read 16 rows of W at one k

template <class W, class X, class Epilogue>
__device__ __forceinline__ void linear_v2(
    const X* __restrict__ x,  // [R, in]
    const W* __restrict__ w,  // [out, in]
    int rows, int in, const Epilogue& epilogue) {
  DYN_SMEM(smem);
  float* xs = reinterpret_cast<float*>(smem);  // [V2_TILE, V2_PITCH]
  float* ws = xs + V2_TILE * V2_PITCH;         // [V2_TILE, V2_PITCH]
  const int row0 = blockIdx.y * V2_TILE, col0 = blockIdx.x * V2_TILE;
  const int tid = threadIdx.y * V2_TILE + threadIdx.x;
  float sum[1] = {0.0f};
  for (int k0 = 0; k0 < in; k0 += V2_K) {
    for (int i = tid; i < V2_TILE * V2_K; i += V2_TILE * V2_TILE) {
      const int r = i / V2_K, k = k0 + i % V2_K;
      const bool xInside = row0 + r < rows && k < in;
      const bool wInside = col0 + r < epilogue.outputs && k < in;
      xs[r * V2_PITCH + i % V2_K] = xInside ? load(x + (size_t)(row0 + r) * in + k) : 0.0f;
      ws[r * V2_PITCH + i % V2_K] = wInside ? load(w + (size_t)(col0 + r) * in + k) : 0.0f;
    }
    __syncthreads();
    const int steps = min(V2_K, in - k0);  // adding zeros would turn a -0 into 0
    for (int k = 0; k < steps; k++) {
      sum[0] = fmaf(xs[threadIdx.y * V2_PITCH + k], ws[threadIdx.x * V2_PITCH + k], sum[0]);
    }
    __syncthreads();
  }
  const int row = row0 + threadIdx.y, col = col0 + threadIdx.x;
  if (row < rows && col < epilogue.outputs) epilogue.put(row, col, sum);
}

// ---- v3: tiles in registers.
// From v2: a block makes 128 x 64 outputs, a thread 8 x 4 of them in registers: three 16-byte shared
// loads for 32 fma. Tiles lie [k][row], so that a thread's rows are one load; f16 and bf16 are widened
// once, on the way into shared memory. Results leave through shared memory, 16 bytes a thread.
// Limits: none on the shape; rows that are not a multiple of 4 elements long are read one by one.

constexpr int V3_ROWS = 128, V3_COLS = 64, V3_K = 16, V3_THREADS = 256;

// 4 elements from k on; zero beyond the row's end.
template <class E>
__device__ __forceinline__ float4 load4(const E* row, int k, int in) {
  if (in % 4 == 0) return k < in ? load4(row + k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = k + i < in ? load(row + k + i) : 0.0f;
  return make_float4(v[0], v[1], v[2], v[3]);
}

// Rows row0.. of `from` [count, in], k0.. of each, as tile [V3_K][ROWS]. A warp stores 32 rows at one
// k: 32 banks.
template <int ROWS, class E>
__device__ __forceinline__ void stage_v3(
    float* tile, const E* from, int row0, int count, int k0, int in) {
#pragma unroll
  for (int i = 0; i < ROWS * V3_K / 4 / V3_THREADS; i++) {
    const int piece = threadIdx.x + i * V3_THREADS;
    const int r = piece % ROWS, k = piece / ROWS * 4;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row0 + r < count) v = load4(from + (size_t)(row0 + r) * in, k0 + k, in);
    float* to = tile + k * ROWS + r;
    to[0] = v.x, to[ROWS] = v.y, to[2 * ROWS] = v.z, to[3 * ROWS] = v.w;
  }
}

template <class W, class X, class Epilogue>
__device__ __forceinline__ void linear_v3(
    const X* __restrict__ x,  // [R, in]
    const W* __restrict__ w,  // [out, in]
    int rows, int in, const Epilogue& epilogue) {
  DYN_SMEM(smem);
  float* xs = reinterpret_cast<float*>(smem);  // [V3_K, V3_ROWS]
  float* ws = xs + V3_K * V3_ROWS;             // [V3_K, V3_COLS]
  const int row0 = blockIdx.y * V3_ROWS, col0 = blockIdx.x * V3_COLS;
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;  // rows ty*4.. and 64 + ty*4.., columns tx*4..
  float acc[8][4] = {};
  for (int k0 = 0; k0 < in; k0 += V3_K) {
    stage_v3<V3_ROWS>(xs, x, row0, rows, k0, in);
    stage_v3<V3_COLS>(ws, w, col0, epilogue.outputs, k0, in);
    __syncthreads();
    const int steps = min(V3_K, in - k0);
    for (int k = 0; k < steps; k++) {
      const float4 low = lds128_f32(xs + k * V3_ROWS + ty * 4);
      const float4 high = lds128_f32(xs + k * V3_ROWS + V3_ROWS / 2 + ty * 4);
      const float4 b = lds128_f32(ws + k * V3_COLS + tx * 4);
      const float a[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; i++) {
        acc[i][0] = fmaf(a[i], b.x, acc[i][0]);
        acc[i][1] = fmaf(a[i], b.y, acc[i][1]);
        acc[i][2] = fmaf(a[i], b.z, acc[i][2]);
        acc[i][3] = fmaf(a[i], b.w, acc[i][3]);
      }
    }
    __syncthreads();
  }
  float* tile = reinterpret_cast<float*>(smem);  // [V3_ROWS, SUMS_PITCH], over xs and ws
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int r = i / 4 * (V3_ROWS / 2) + ty * 4 + i % 4;
    sts128(tile + r * SUMS_PITCH + tx * 4, make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
  }
  __syncthreads();
  put_tile<V3_ROWS, V3_COLS, V3_THREADS>(tile, row0, rows, col0, epilogue);
}

// ---- The kernels.

#define LINEAR_KERNELS(version, bounds, name, W, X)                                               \
  extern "C" __global__ void __launch_bounds__ bounds linear_##version##_##name(                \
      const X* __restrict__ x, const W* __restrict__ w, const float* __restrict__ bias,           \
      void* __restrict__ out, int rows, int in, int outputs, int element, int activation) {       \
    linear_##version(x, w, rows, in, Output{bias, out, outputs, element, activation});            \
  }                                                                                               \
  EXPORT_KERNEL(linear_##version##_##name)                                                        \
  extern "C" __global__ void __launch_bounds__ bounds linear_##version##_##name##_residual(     \
      const X* __restrict__ x, const W* __restrict__ w, const float* __restrict__ bias,           \
      float* __restrict__ acc, int rows, int in, int outputs) {                                   \
    linear_##version(x, w, rows, in, Residual{bias, acc, outputs});                               \
  }                                                                                               \
  EXPORT_KERNEL(linear_##version##_##name##_residual)                                             \
  extern "C" __global__ void __launch_bounds__ bounds linear_##version##_##name##_qkv(          \
      const X* __restrict__ x, const W* __restrict__ w, const float* __restrict__ bias,           \
      void* __restrict__ qkv, int rows, int in, int outputs, int element,                         \
      void* __restrict__ keys, void* __restrict__ values, const int* __restrict__ sequence,       \
      const int* __restrict__ position, int sequences, int heads, int headDim, int capacity,      \
      int cacheElement) {                                                                         \
    linear_##version(x, w, rows, in,                                                              \
                     Qkv{bias, qkv, keys, values, sequence, position, outputs, element,           \
                         sequences, heads, headDim, capacity, cacheElement});                     \
  }                                                                                               \
  EXPORT_KERNEL(linear_##version##_##name##_qkv)

// bounds: threads, and blocks that shall fit a multiprocessor: it keeps the compiler from spilling a
// register to reach one block more.
#define LINEAR_VERSION(version, bounds, f32Bounds)                      \
  LINEAR_KERNELS(version, f32Bounds, f32, float, float)                 \
  LINEAR_KERNELS(version, bounds, f16, __half, __half)                  \
  LINEAR_KERNELS(version, bounds, f16_x32, __half, float)               \
  LINEAR_KERNELS(version, bounds, bf16, __nv_bfloat16, __nv_bfloat16)   \
  LINEAR_KERNELS(version, bounds, bf16_x32, __nv_bfloat16, float)

LINEAR_VERSION(v1, (V1_COLS * V1_ROWS), (V1_COLS * V1_ROWS))
LINEAR_VERSION(v2, (V2_TILE * V2_TILE), (V2_TILE * V2_TILE))
LINEAR_VERSION(v3, (V3_THREADS, 2), (V3_THREADS, 2))
LINEAR_VERSION(v4, (V4_THREADS, 3), (V4_THREADS, 2))
