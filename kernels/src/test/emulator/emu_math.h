// CUDA's arithmetic intrinsics on the host. <math.h> brings expf, exp2f, tanhf, erff, fmaf and their like.
#pragma once

namespace emu {
/**
 * Hides a value from the optimiser. g++ contracts a * b + c to a fused multiply-add as nvcc does; CUDA
 * promises that the _rn intrinsics are never contracted, and bitwise equality with the CPU relies on it.
 */
inline float opaque(float x) {
  volatile float kept = x;
  return kept;
}
}  // namespace emu

inline float __fmul_rn(float a, float b) { return emu::opaque(a * b); }
inline float __fadd_rn(float a, float b) { return emu::opaque(a) + emu::opaque(b); }
inline float __fsub_rn(float a, float b) { return emu::opaque(a) - emu::opaque(b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }

// The fast intrinsics are less exact on a GPU (2 to 3 ulp and more for large arguments); tolerances must allow it.
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
/** ex2.approx.ftz.f32: 2^x, denormal results flushed to 0. */
inline float exp2_approx(float x) {
  const float y = exp2f(x);  // called for every x, so that it is counted for every x
  return x < -126.0f ? 0.0f : y;
}
inline float __cosf(float x) { return cosf(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

inline int __float_as_int(float f) { return emu::bits_as<int>(f); }
inline unsigned __float_as_uint(float f) { return emu::bits_as<unsigned>(f); }
inline float __int_as_float(int i) { return emu::bits_as<float>(i); }
inline float __uint_as_float(unsigned u) { return emu::bits_as<float>(u); }
inline long long __double_as_longlong(double d) { return emu::bits_as<long long>(d); }
inline double __longlong_as_double(long long l) { return emu::bits_as<double>(l); }
inline int __float2int_rn(float f) { return (int)nearbyintf(f); }
inline int __float2int_rz(float f) { return (int)f; }
inline int __float2int_rd(float f) { return (int)floorf(f); }
inline float __int2float_rn(int i) { return (float)i; }
inline float __uint2float_rn(unsigned u) { return (float)u; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
/** Dot product of four signed bytes, added to c (dp4a). */
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
  return c;
}

#define EMU_MIN_MAX(type)                                  \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

// Read-only and cache-hinted loads are ordinary loads here.
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline void __stcg(T* p, T v) { *p = v; }
template <class T> inline void __stcs(T* p, T v) { *p = v; }
