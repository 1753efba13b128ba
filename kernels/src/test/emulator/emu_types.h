// CUDA's vector types, half and bfloat16.
#pragma once
#include <cstdint>
#include <cstring>

// The alignment is CUDA's: UBSan then reports a vector load from a misaligned address, which traps on a GPU.
#define EMU_VECTOR_TYPES(type, scalar)                                                                 \
  struct alignas(2 * sizeof(scalar)) type##2 { scalar x, y; };                                         \
  struct type##3 { scalar x, y, z; };                                                                  \
  struct alignas(sizeof(scalar) * 4 > 16 ? 16 : sizeof(scalar) * 4) type##4 { scalar x, y, z, w; };    \
  inline type##2 make_##type##2(scalar x, scalar y) { return {x, y}; }                                 \
  inline type##3 make_##type##3(scalar x, scalar y, scalar z) { return {x, y, z}; }                    \
  inline type##4 make_##type##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
EMU_VECTOR_TYPES(uint, unsigned)
EMU_VECTOR_TYPES(float, float)
EMU_VECTOR_TYPES(int, int)
EMU_VECTOR_TYPES(short, short)
EMU_VECTOR_TYPES(ushort, unsigned short)
EMU_VECTOR_TYPES(char, signed char)
EMU_VECTOR_TYPES(uchar, unsigned char)
EMU_VECTOR_TYPES(double, double)
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(16) longlong2 { long long x, y; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

namespace emu {
/** The bits of one type read as another of the same size. */
template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emu

// ---- half: IEEE binary16, conversions round to nearest even (GCC's _Float16 does) ----
struct __half {
  _Float16 value;
};
typedef __half half;
struct alignas(4) __half2 {
  __half x, y;
};
inline __half __float2half_rn(float f) { return {(_Float16)f}; }
inline __half __float2half(float f) { return {(_Float16)f}; }
inline float __half2float(__half h) { return (float)h.value; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }
inline unsigned short __half_as_ushort(__half h) { return emu::bits_as<unsigned short>(h); }
inline __half __ushort_as_half(unsigned short u) { return emu::bits_as<__half>(u); }

// ---- bfloat16: the upper half of a float, rounded to nearest even; NaN stays NaN ----
struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  uint32_t u = emu::bits_as<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) {
    return {0x7fff};  // CUDA's canonical NaN
  }
  return {(uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
inline float __bfloat162float(__nv_bfloat16 b) { return emu::bits_as<float>((uint32_t)b.bits << 16); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 b) { return {__bfloat162float(b.x), __bfloat162float(b.y)}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return {u}; }
