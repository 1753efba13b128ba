// The emulator's side of gpu.cuh's PTX wrappers, written from the PTX ISA manual (sections "Matrix fragments for
// mma.m16n8k16 / m16n8k8", "ldmatrix", "cp.async").
#pragma once
#include "emu_threads.h"

namespace emu __attribute__((visibility("default"))) {  // a library of mutants has only these of the emulator
/** Fails unless p points to bytes of the block's shared memory, aligned to align. */
void check_shared(const void* p, size_t bytes, size_t align, const char* what, Site site);
/** Notes a 16-byte shared access of this lane, to count bank conflicts over the warp. */
void note_shared_access(const void* p, Site site);

struct LoadMatrix {
  const void* address;
  uint16_t row[8];
  unsigned result[4];
};
void operation_ldmatrix(void* const* lanes, unsigned mask);
void operation_ldmatrix_trans(void* const* lanes, unsigned mask);

struct Mma {
  float* d;
  const unsigned* a;
  unsigned b[2];
};
void operation_mma_f16(void* const* lanes, unsigned mask);
void operation_mma_bf16(void* const* lanes, unsigned mask);
void operation_mma_tf32(void* const* lanes, unsigned mask);

void async_copy(void* shared, const void* global, bool valid, Site site);
void async_commit(Site site);
void async_wait(int pending, Site site);

/** A product of a warpgroup, as one thread started it. */
struct WarpgroupProduct {
  float* d;           // [8][4]
  const unsigned* a;  // [4]
  uint64_t b;         // descriptor
  bool n_major, add, bf16;
  Site site;
};
unsigned shared_window(const void* p, Site site);
void warpgroup_product(const WarpgroupProduct& product);
void warpgroup_fence(Site site);
void warpgroup_commit(Site site);
void warpgroup_wait(int pending, Site site);
void fence_for_async_reads();

inline void ldmatrix(WarpOperation operation, const char* name, unsigned (&r)[4], const void* p, Site site) {
  check_shared(p, 16, 16, name, site);
  LoadMatrix m;
  m.address = p;
  memcpy(m.row, p, 16);  // here, in kernel code, so that the sanitizers see this lane read its row
  warp_collective(operation, name, 0xffffffffu, &m, false, site);
  for (int i = 0; i < 4; i++) r[i] = m.result[i];
}
inline void mma(WarpOperation operation, const char* name, float* d, const unsigned* a, unsigned b0, unsigned b1,
                Site site) {
  Mma m{d, a, {b0, b1}};
  warp_collective(operation, name, 0xffffffffu, &m, false, site);
}
}  // namespace emu

inline void ldmatrix_x4(unsigned (&r)[4], const void* p, EMU_SITE) {
  emu::ldmatrix(emu::operation_ldmatrix, "ldmatrix_x4", r, p, site);
}
inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* p, EMU_SITE) {
  emu::ldmatrix(emu::operation_ldmatrix_trans, "ldmatrix_x4_trans", r, p, site);
}
inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, EMU_SITE) {
  emu::mma(emu::operation_mma_f16, "mma_m16n8k16_f16", d, a, b0, b1, site);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, EMU_SITE) {
  emu::mma(emu::operation_mma_bf16, "mma_m16n8k16_bf16", d, a, b0, b1, site);
}
inline void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, EMU_SITE) {
  emu::mma(emu::operation_mma_tf32, "mma_m16n8k8_tf32", d, a, b0, b1, site);
}
inline unsigned shared_address(const void* p, EMU_SITE) { return emu::shared_window(p, site); }
inline uint64_t warpgroup_operand(const void* p, EMU_SITE) {
  return (uint64_t)(emu::shared_window(p, site) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}
inline void fence_for_async_reads() { emu::fence_for_async_reads(); }
inline void warpgroup_fence(EMU_SITE) { emu::warpgroup_fence(site); }
inline void warpgroup_commit(EMU_SITE) { emu::warpgroup_commit(site); }
template <int PENDING>
inline void warpgroup_wait(EMU_SITE) {
  static_assert(PENDING >= 0, "warpgroup_wait<N>: N groups may stay pending");
  emu::warpgroup_wait(PENDING, site);
}
inline void hold(float (*)[4]) {}
template <bool N_MAJOR>
inline void wgmma_f16(float (*d)[4], const unsigned (&a)[4], uint64_t b, bool add, EMU_SITE) {
  emu::warpgroup_product({&d[0][0], a, b, N_MAJOR, add, false, site});
}
template <bool N_MAJOR>
inline void wgmma_bf16(float (*d)[4], const unsigned (&a)[4], uint64_t b, bool add, EMU_SITE) {
  emu::warpgroup_product({&d[0][0], a, b, N_MAJOR, add, true, site});
}
/** cvt.rna.tf32.f32: 10 bits of mantissa, ties away from zero; the low 13 bits are zero. */
inline unsigned to_tf32(float x) {
  unsigned u = emu::bits_as<unsigned>(x);
  bool finite = (u & 0x7f800000u) != 0x7f800000u;
  return finite ? (u + 0x1000u) & 0xffffe000u : u & 0xffffe000u;
}

inline void cp_async16(void* shared, const void* global, bool valid, EMU_SITE) {
  emu::async_copy(shared, global, valid, site);
}
inline void cp_async_commit(EMU_SITE) { emu::async_commit(site); }
template <int PENDING>
inline void cp_async_wait(EMU_SITE) {
  static_assert(PENDING >= 0, "cp_async_wait<N>: N groups may stay pending");
  emu::async_wait(PENDING, site);
}

inline uint4 lds128(const void* shared, EMU_SITE) {
  emu::check_shared(shared, 16, 16, "lds128", site);
  emu::note_shared_access(shared, site);
  return *static_cast<const uint4*>(shared);
}
inline float4 lds128_f32(const void* shared, EMU_SITE) {
  emu::check_shared(shared, 16, 16, "lds128_f32", site);
  emu::note_shared_access(shared, site);
  return *static_cast<const float4*>(shared);
}
inline void sts128(void* shared, uint4 value, EMU_SITE) {
  emu::check_shared(shared, 16, 16, "sts128", site);
  emu::note_shared_access(shared, site);
  *static_cast<uint4*>(shared) = value;
}
inline void sts128(void* shared, float4 value, EMU_SITE) {
  emu::check_shared(shared, 16, 16, "sts128", site);
  emu::note_shared_access(shared, site);
  *static_cast<float4*>(shared) = value;
}

inline unsigned pack_f16x2(float lo, float hi) { return emu::bits_as<unsigned>(__floats2half2_rn(lo, hi)); }
inline unsigned pack_bf16x2(float lo, float hi) { return emu::bits_as<unsigned>(__floats2bfloat162_rn(lo, hi)); }
