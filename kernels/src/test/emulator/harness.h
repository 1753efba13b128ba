// C++ tests of kernels through the stand-in driver: for the sanitizers, which a JVM does not go with, and for the
// mutation check. A case allocates, launches and checks; the harness runs it under every schedule.
//
//   CASE(layernorm_f32) {
//     Buffer<float> x(rows * C, random.normal(rows * C)), y(rows * C);
//     launch("layernorm_f32", {rows}, {128}, 256, x, y, C);
//     expect_near("y", y.download(), expected, 1e-5);
//   }
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "emu_types.h"

typedef uint64_t CUdeviceptr;
extern "C" {
int cuInit(unsigned);
int cuCtxCreate_v2(void** context, unsigned flags, int device);
int cuCtxDestroy_v2(void* context);
int cuCtxSynchronize();
int cuMemAlloc_v2(CUdeviceptr*, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
int cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
int cuModuleLoadData(void** module, const void* image);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuFuncSetAttribute(void* function, int attribute, int value);
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra);
int cuLaunchCooperativeKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, void* stream, void** parameters);
int cuGetErrorString(int code, const char** text);
int emu_options(int schedule, long long seed, int eager);
int emu_stats(unsigned long long*);
int emu_live_allocations();
int emu_clear_error();
int emu_forget_errors();
const char* emu_kernel_name(int);
}

namespace harness {

/** Numbers that depend on the seed only. */
class Random {
 public:
  explicit Random(uint64_t seed) : engine(seed) {}
  std::vector<float> normal(size_t n, float scale = 1.0f) {
    std::normal_distribution<float> d(0.0f, scale);
    std::vector<float> v(n);
    for (float& x : v) x = d(engine);
    return v;
  }

 private:
  std::mt19937_64 engine;
};

struct Case {
  std::string name;
  std::function<void(Random& random)> run;
};
std::vector<Case>& cases();
struct Registered {
  Registered(const char* name, void (*run)(Random&)) { cases().push_back({name, run}); }
};
#define CASE(name)                                                  \
  static void name(harness::Random& random);                        \
  static const harness::Registered registered_##name(#name, name);  \
  static void name([[maybe_unused]] harness::Random& random)

/** Throws with the driver's words unless the code is 0. */
void check(int code, const std::string& what);

/** Device memory, NaN where nothing was uploaded. */
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t n) : n(n) { check(cuMemAlloc_v2(&address, n * sizeof(T)), "cuMemAlloc"); }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) { upload(values); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cuMemFree_v2(address); }
  void upload(const std::vector<T>& values) {
    check(cuMemcpyHtoD_v2(address, values.data(), values.size() * sizeof(T)), "upload");
  }
  std::vector<T> download() const {
    std::vector<T> values(n);
    check(cuMemcpyDtoH_v2(values.data(), address, n * sizeof(T)), "download");
    return values;
  }
  CUdeviceptr address;
  const size_t n;
};

template <class T>
CUdeviceptr argument(const Buffer<T>& b) { return b.address; }
inline int argument(int i) { return i; }
inline unsigned argument(unsigned u) { return u; }
inline float argument(float f) { return f; }
inline CUdeviceptr argument(CUdeviceptr a) { return a; }

/** Launches on the default stream and waits. */
void launch_with(const char* kernel, dim3 grid, dim3 block, unsigned shared, void** parameters, bool cooperative);
/** Launches without waiting. */
void launch_async(void* stream, const char* kernel, dim3 grid, dim3 block, unsigned shared, void** parameters,
                  bool cooperative);

/** Launches and waits; throws with the emulator's report if the kernel failed. */
template <class... A>
void launch(const char* kernel, dim3 grid, dim3 block, unsigned shared, const A&... arguments) {
  std::tuple<decltype(argument(arguments))...> values(argument(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* parameters[] = {&value..., nullptr};
        launch_with(kernel, grid, block, shared, parameters, false);
      },
      values);
}
template <class... A>
void launch_on(void* stream, const char* kernel, dim3 grid, dim3 block, unsigned shared, const A&... arguments) {
  std::tuple<decltype(argument(arguments))...> values(argument(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* parameters[] = {&value..., nullptr};
        launch_async(stream, kernel, grid, block, shared, parameters, false);
      },
      values);
}
template <class... A>
void launch_cooperative(const char* kernel, dim3 grid, dim3 block, unsigned shared, const A&... arguments) {
  std::tuple<decltype(argument(arguments))...> values(argument(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* parameters[] = {&value..., nullptr};
        launch_with(kernel, grid, block, shared, parameters, true);
      },
      values);
}

/** A case for each of the product's kernels: the launch that was recorded in the folder; see record.h. */
std::vector<Case> replays(const std::string& folder);

/** Throws if a value is not finite or off by more than tolerance * max(1, |expected|). */
void expect_near(const char* what, const std::vector<float>& actual, const std::vector<double>& expected,
                 double tolerance);
/** Throws unless the action throws with a message that has all the parts. */
void expect_failure(const std::function<void()>& action, const std::vector<std::string>& parts);
void expect_equal(const char* what, long long actual, long long expected);

// Conversions between element types, for cases that are templates.
inline float to_float(float f) { return f; }
inline float to_float(__half h) { return __half2float(h); }
inline float to_float(__nv_bfloat16 b) { return __bfloat162float(b); }
inline void from_float(float f, float* to) { *to = f; }
inline void from_float(float f, __half* to) { *to = __float2half_rn(f); }
inline void from_float(float f, __nv_bfloat16* to) { *to = __float2bfloat16_rn(f); }
template <class T>
std::vector<T> convert(const std::vector<float>& values) {
  std::vector<T> result(values.size());
  for (size_t i = 0; i < values.size(); i++) from_float(values[i], &result[i]);
  return result;
}
template <class T>
std::vector<float> floats(const std::vector<T>& values) {
  std::vector<float> result(values.size());
  for (size_t i = 0; i < values.size(); i++) result[i] = to_float(values[i]);
  return result;
}

}  // namespace harness
