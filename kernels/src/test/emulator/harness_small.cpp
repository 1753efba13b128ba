// Embedding, layer normalisation, pointwise and sampling under the sanitizers. What they compute is held to its
// definition by the Java tests; here it is enough that all of it is written, and the same whatever the schedule.
#include <cmath>

#include "harness.h"

using namespace harness;

namespace {

void expect_finite(const char* what, const std::vector<float>& values) {
  for (float x : values)
    if (!std::isfinite(x)) throw std::runtime_error(std::string(what) + " is not finite throughout");
}

void layernorm(const char* kernel, int rows, int C, dim3 grid, dim3 block, unsigned shared, Random& random) {
  std::vector<float> values = random.normal((size_t)rows * C);
  Buffer<float> x(values), gamma(random.normal(C)), beta(random.normal(C)), y((size_t)rows * C);
  std::vector<float> g = gamma.download(), b = beta.download();
  launch(kernel, grid, block, shared, x, gamma, beta, y, rows, C, 1e-5f);
  std::vector<double> expected;
  for (int r = 0; r < rows; r++) {
    double mean = 0, variance = 0;
    for (int c = 0; c < C; c++) mean += values[(size_t)r * C + c] / C;
    for (int c = 0; c < C; c++) variance += std::pow(values[(size_t)r * C + c] - mean, 2) / C;
    for (int c = 0; c < C; c++)
      expected.push_back((values[(size_t)r * C + c] - mean) / std::sqrt(variance + 1e-5) * g[c] + b[c]);
  }
  expect_near(kernel, y.download(), expected, 1e-5);
}

// Shared memory of sample_v1 and sample_argmax: SHARED_BYTES in SampleKernels.java.
constexpr unsigned SHARED = 25240;

void sample(int V, unsigned threads, float temperature, int top_k, double top_p, float least, Random& random) {
  const int rows = 2, words = (V + 31) / 32;
  Buffer<float> logits(random.normal((size_t)rows * V, 3)), logprobs(rows);
  std::vector<int> all(words, -1), none((size_t)rows * words, 0x11111111);
  Buffer<int> allowed(all), seen(none), samples(std::vector<int>{0, 1}), positions(std::vector<int>{5, 9}), ids(rows),
      ranks(rows), errors(rows);
  long long p, seed = 42;
  memcpy(&p, &top_p, sizeof p);
  launch("sample_v1_f32", {rows}, {threads}, SHARED, logits, allowed, seen, samples, positions, ids, logprobs, ranks,
         errors, V, V, temperature, top_k, (CUdeviceptr)p, least, 1.2f, (CUdeviceptr)seed);
  for (int error : errors.download()) expect_equal("error", error, 0);
  for (int id : ids.download()) expect_equal("id in range", id >= 0 && id < V, 1);
  expect_finite("logprobs", logprobs.download());
}

}  // namespace

CASE(small_layernorm) {
  layernorm("layernorm_v1_f32", 5, 37, {1}, {128}, 0, random);
  layernorm("layernorm_v2_f32", 2, 600, {2}, {256}, 32, random);
  layernorm("layernorm_v3_f32", 5, 264, {2}, {128}, 4 * 264 * 4, random);
}

CASE(small_embedding) {
  for (int C : {7, 16}) {
    Buffer<int> ids(std::vector<int>{0, 9, 3}), positions(std::vector<int>{4, 0, 1});
    Buffer<float> wte(random.normal(10 * C)), wpe(random.normal(5 * C)), x(3 * C);
    launch("embedding_v1_f32", {3}, {128}, 0, ids, positions, wte, wpe, x, 10, 5, C);
    expect_finite("x", x.download());
  }
}

CASE(small_pointwise) {
  for (int n : {7, 2049}) {
    Buffer<float> x(random.normal(n)), y(random.normal(n)), z(n);
    dim3 grid((n + 2047) / 2048);
    launch("pointwise_residual_f32", grid, {256}, 0, x, y, (CUdeviceptr)n);
    launch("pointwise_activate_f32", grid, {256}, 0, x, z, (CUdeviceptr)n, 1);
    expect_finite("z", z.download());
    launch("pointwise_convert_f32", grid, {256}, 0, x, y, (CUdeviceptr)n, 0);
    expect_finite("y", y.download());
  }
}

CASE(small_sample) {
  sample(7, 64, 1, 0, 1, -INFINITY, random);
  sample(1000, 128, 0, 0, 1, -INFINITY, random);
  sample(1000, 128, 0.8f, 20, 0.9, -5, random);
  sample(301, 64, 1, 0, 0.5, -INFINITY, random);
}

CASE(small_softmax) {
  const int V = 301;
  Buffer<float> x(random.normal(2 * V, 5)), y(2 * V);
  Buffer<int> ids(2), errors(2);
  launch("sample_softmax_f32", {2}, {128}, 16, x, y, V, V, 0.7f, 0);
  expect_finite("y", y.download());
  launch("sample_argmax_f32", {2}, {128}, SHARED, x, (CUdeviceptr)0, ids, errors, V, V);
  for (int error : errors.download()) expect_equal("error", error, 0);
}
