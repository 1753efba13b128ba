// Linear maps of linear.cu and gemv.cu against sums in double.
#include "harness.h"

using namespace harness;

namespace {

const CUdeviceptr NONE = 0;

/** out = x . W^T + b; x of X, W of W. */
template <class X, class W>
struct Problem {
  Problem(int R, int in, int outputs, Random& random)
      : R(R), in(in), outputs(outputs),
        x(convert<X>(random.normal((size_t)R * in))),
        w(convert<W>(random.normal((size_t)outputs * in))),
        b(random.normal(outputs)) {}

  /** Launches a version of linear.cu and compares. */
  void run(const char* kernel, dim3 tile, dim3 block, unsigned shared, double tolerance) {
    Buffer<X> d_x(x);
    Buffer<W> d_w(w);
    Buffer<float> d_b(b), out((size_t)R * outputs);
    dim3 grid((outputs + tile.x - 1) / tile.x, (R + tile.y - 1) / tile.y);
    launch(kernel, grid, block, shared, d_x, d_w, d_b, out, R, in, outputs, 0, 0);
    expect_near("out", out.download(), expected(), tolerance);
  }

  /** Launches gemv for up to `rows` rows, on two blocks. */
  void run_gemv(const char* kernel, int rows, double tolerance) {
    Buffer<X> d_x(x);
    Buffer<W> d_w(w);
    Buffer<float> d_b(b), out((size_t)R * outputs);
    const int chunks = std::min((in + 511) / 512, 16 / rows), block_outputs = rows >= 4 ? 8 : 4;
    const unsigned shared = rows * chunks * (512 + block_outputs) * 4;
    launch(kernel, {2}, {256}, shared, d_x, d_w, NONE, d_b, out, R, in, outputs, 0, 0);
    expect_near("out", out.download(), expected(), tolerance);
  }

  std::vector<double> expected() const {
    std::vector<double> out((size_t)R * outputs);
    for (int r = 0; r < R; r++) {
      for (int o = 0; o < outputs; o++) {
        double sum = b[o];
        for (int k = 0; k < in; k++) {
          sum += (double)to_float(x[(size_t)r * in + k]) * to_float(w[(size_t)o * in + k]);
        }
        out[(size_t)r * outputs + o] = sum;
      }
    }
    return out;
  }

  const int R, in, outputs;
  const std::vector<X> x;
  const std::vector<W> w;
  const std::vector<float> b;
};

const unsigned SHARED_V2 = 2 * 16 * 33 * 4, SHARED_V3 = 128 * 72 * 4, SHARED_V4 = 2 * (128 + 64) * 128;
const dim3 TILE_V2(16, 16), TILE_V34(64, 128);
const double TOLERANCE = 1e-4;  // sums of up to 8,000 products of normal numbers, in f32

}  // namespace

CASE(linear_v2_f32) { Problem<float, float>(19, 70, 35, random).run("linear_v2_f32", TILE_V2, {16, 16}, SHARED_V2, TOLERANCE); }
CASE(linear_v3_f32) { Problem<float, float>(130, 50, 67, random).run("linear_v3_f32", TILE_V34, {256}, SHARED_V3, TOLERANCE); }
CASE(linear_v3_f16) {
  Problem<float, __half>(5, 35, 67, random).run("linear_v3_f16_x32", TILE_V34, {256}, SHARED_V3, TOLERANCE);
}
CASE(linear_v4_f32) {
  Problem<float, float>(67, 100, 68, random).run("linear_v4_f32", TILE_V34, {128}, SHARED_V4, TOLERANCE);
}
CASE(linear_v4_f16) {
  Problem<__half, __half>(130, 200, 67, random).run("linear_v4_f16", TILE_V34, {128}, SHARED_V4, TOLERANCE);
}
CASE(linear_v4_bf16) {
  Problem<__nv_bfloat16, __nv_bfloat16>(1, 136, 66, random).run("linear_v4_bf16", TILE_V34, {128}, SHARED_V4, TOLERANCE);
}
CASE(linear_v4_narrowing) {  // x is rounded to f16: 2^-11 of each product
  Problem<float, __half>(33, 200, 40, random).run("linear_v4_f16_x32", TILE_V34, {128}, SHARED_V4, 2e-2);
}

CASE(gemv_f32) { Problem<float, float>(1, 8720, 9, random).run_gemv("gemv_v1_f32", 1, 1e-3); }
CASE(gemv_f16) { Problem<float, __half>(3, 1040, 19, random).run_gemv("gemv_v1_f16_r4", 4, TOLERANCE); }
CASE(gemv_bf16) { Problem<float, __nv_bfloat16>(8, 2064, 11, random).run_gemv("gemv_v1_bf16_r8", 8, TOLERANCE); }
