// Prefill attention against textbook attention in double, for the mutation check.
#include <cmath>

#include "harness.h"

using namespace harness;

namespace {

struct Segment {
  int first_row, rows, sequence, first_position;
};

struct Shape {
  int H, D, rows;
  bool causal;
};

/** Two segments: one from position 0, one that continues a sequence. */
template <class T>
class Problem {
 public:
  Problem(Shape shape, Random& random)
      : shape(shape), C(shape.H * shape.D), segments{{0, shape.rows, 1, 0}, {shape.rows, 3, 0, 6}} {
    R = shape.rows + 3;
    capacity = std::max(shape.rows, 9);  // one of the caches is full: what reads on leaves the allocation
    scale = 1.0f / std::sqrt((float)shape.D);
    qkv = convert<T>(random.normal((size_t)R * 3 * C, 1.5f));
    K = cache(random);
    V = cache(random);
  }

  /** Launches the kernel and compares all of y and lse. */
  void run(const char* kernel, int rows_per_block, unsigned shared, double tolerance, unsigned threads = 128) {
    Buffer<T> d_qkv(qkv), d_K(K), d_V(V), y((size_t)R * C);
    Buffer<Segment> d_segments(segments);
    Buffer<float> lse((size_t)R * shape.H);
    dim3 grid((shape.rows + rows_per_block - 1) / rows_per_block, shape.H, 2);
    launch(kernel, grid, {threads}, shared, d_qkv, d_K, d_V, d_segments, y, lse, shape.H, shape.D, capacity, scale,
           (int)shape.causal);
    reference();
    expect_near("lse", lse.download(), expected_lse, tolerance);
    expect_near("y", floats(y.download()), expected_y, tolerance);
  }

 private:
  // [2, H, capacity, D], NaN where no key is: zero times NaN shows a key that was read though it is none
  std::vector<T> cache(Random& random) {
    std::vector<float> values((size_t)2 * shape.H * capacity * shape.D, NAN);
    for (const Segment& s : segments) {
      int keys = s.first_position + s.rows;
      for (int h = 0; h < shape.H; h++) {
        std::vector<float> filled = random.normal((size_t)keys * shape.D);
        std::copy(filled.begin(), filled.end(),
                  values.begin() + ((size_t)s.sequence * shape.H + h) * capacity * shape.D);
      }
    }
    return convert<T>(values);
  }

  void reference() {
    expected_y.assign((size_t)R * C, 0);
    expected_lse.assign((size_t)R * shape.H, 0);
    for (const Segment& s : segments) {
      for (int i = 0; i < s.rows; i++) {
        for (int h = 0; h < shape.H; h++) reference_row(s, i, h);
      }
    }
  }
  void reference_row(const Segment& s, int i, int h) {
    const int D = shape.D, row = s.first_row + i;
    const int keys = shape.causal ? s.first_position + i + 1 : s.first_position + s.rows;
    const size_t at = ((size_t)s.sequence * shape.H + h) * capacity * D;
    std::vector<double> p(keys);
    double m = -INFINITY, l = 0;
    for (int j = 0; j < keys; j++) {
      for (int d = 0; d < D; d++) {
        p[j] += (double)to_float(qkv[(size_t)row * 3 * C + h * D + d]) * to_float(K[at + (size_t)j * D + d]);
      }
      p[j] *= scale;
      m = std::fmax(m, p[j]);
    }
    for (double& x : p) l += x = std::exp(x - m);
    for (int j = 0; j < keys; j++) {
      for (int d = 0; d < D; d++) {
        expected_y[(size_t)row * C + h * D + d] += p[j] / l * to_float(V[at + (size_t)j * D + d]);
      }
    }
    expected_lse[(size_t)row * shape.H + h] = m + std::log(l);
  }

  const Shape shape;
  const int C;
  const std::vector<Segment> segments;
  int R, capacity;
  float scale;
  std::vector<T> qkv, K, V;
  std::vector<double> expected_y, expected_lse;
};

/** Shared memory of version 3: Q [64, D+4], K [32, D+4], V [32, D], P [64, 36] in floats. */
unsigned shared_v3(int D) { return 4 * (96 * (D + 4) + 32 * D + 64 * 36); }
/** Of versions 4 and 5: two buffers of K and V, [64, D] of 16 bits each. */
unsigned shared_v4(int D) { return 4 * 64 * D * 2; }
/** Of version 6: three buffers, and what alignment takes. */
unsigned shared_v6() { return 6 * 64 * 64 * 2 + 1024; }

// Products of two f16 values are exact in f32; what is lost is P and y in the narrow type.
const double F32 = 3e-5, F16 = 4e-3;

}  // namespace

CASE(attention_v3_f32) { Problem<float>({1, 64, 200, true}, random).run("attention_v3_d64_f32", 64, shared_v3(64), F32); }
CASE(attention_v4_f16) { Problem<__half>({1, 64, 200, true}, random).run("attention_v4_d64_f16", 64, shared_v4(64), F16); }

// Narrower than the kernel's tiles, and a length that ends inside of one.
CASE(attention_v3_narrow) { Problem<float>({1, 40, 70, true}, random).run("attention_v3_d64_f32", 64, shared_v3(64), F32); }
CASE(attention_v4_narrow) { Problem<__half>({1, 40, 70, false}, random).run("attention_v4_d64_f16", 64, shared_v4(64), F16); }

CASE(attention_v6_f16) { Problem<__half>({1, 64, 330, true}, random).run("attention_v6_d64_f16", 128, shared_v6(), F16, 384); }
CASE(attention_v6_narrow) { Problem<__half>({1, 40, 70, false}, random).run("attention_v6_d64_f16", 128, shared_v6(), F16, 384); }

CASE(attention_v4_conflicts) {
  unsigned long long before[8], after[8];
  emu_stats(before);
  Problem<__half>({1, 64, 65, true}, random).run("attention_v4_d64_f16", 64, shared_v4(64), F16);
  emu_stats(after);
  expect_equal("bank conflicts of ldmatrix", after[4] - before[4], 0);
}

