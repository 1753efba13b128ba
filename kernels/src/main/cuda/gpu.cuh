// Everything that Loupe's kernels use beyond plain CUDA C++: PTX behind wrappers, and two macros.
// Compiled by nvcc the wrappers emit PTX; compiled by g++ (tests) they are the CPU emulator's, which does what
// the PTX ISA manual documents. Nothing else in the kernels is written twice.
//
// Rules for kernels: all shared memory is dynamic (DYN_SMEM), EXPORT_KERNEL(name) follows each
// `extern "C" __global__` kernel, parameters are pointers and scalars of 4 or 8 bytes.
//
// Below sm_80 cp.async is a plain copy and the f16 mma is two m16n8k8; bf16 and tf32 mma trap, because the host
// refuses variants that need them.
#pragma once

#if !defined(__CUDACC__)
#include "emu.h"
#else

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

/** Declares `unsigned char* name`: the block's dynamic shared memory, 128-byte aligned. */
#define DYN_SMEM(name) extern __shared__ __align__(128) unsigned char name[]
/** Registers a kernel with the emulator. */
#define EXPORT_KERNEL(name)

/** Where shared memory lies in its window of addresses. */
__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/** bar.sync id, threads: a barrier over `threads` threads of the block (a multiple of 32); id 1 to 15. */
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/** bar.arrive: counts at a named barrier without waiting there; `threads` are those that arrive and those that wait. */
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/** A barrier over all blocks of a cooperative launch. */
__device__ __forceinline__ void grid_sync() { cooperative_groups::this_grid().sync(); }

/**
 * Waits for the kernel before, where this one was launched to start while that one runs (programmatic dependent launch,
 * sm_90 and later; elsewhere nothing is to wait for), and lets the next one start. What comes before the wait may read
 * what no kernel writes, weights, and writes nothing. What it reads later must not be `const __restrict__`: such loads
 * may be moved before the wait.
 */
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- tensor cores ----------------------------------------------------------------------------------------------
// Fragments of a warp, lane = 4 g + t (g = lane / 4, t = lane % 4). 16-bit types, two values per register:
//   A 16x16, row:  a[0] = (g, 2t..2t+1)  a[1] = (g+8, 2t..)  a[2] = (g, 2t+8..)  a[3] = (g+8, 2t+8..)
//   B 16x8, col:   b0 = (k = 2t..2t+1, n = g)  b1 = (k = 2t+8.., n = g)
//   D 16x8, f32:   d[0] = (g, 2t)  d[1] = (g, 2t+1)  d[2] = (g+8, 2t)  d[3] = (g+8, 2t+1)
// tf32, one value per register:
//   A 16x8:  a[0] = (g, t)  a[1] = (g+8, t)  a[2] = (g, t+4)  a[3] = (g+8, t+4);  B 8x8: b0 = (t, g)  b1 = (t+4, g)

/** Four 8x8 matrices of 16-bit values; lane 8 i + j points to row j of matrix i in shared memory (16 bytes). */
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}

/** As ldmatrix_x4, each matrix transposed. */
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}

/** D += A B with f16 inputs and f32 accumulation. */
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

/** D += A B with bf16 inputs and f32 accumulation; sm_80 and later. */
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

/** D += A B with tf32 inputs (to_tf32) and f32 accumulation; sm_80 and later. */
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

/** x rounded to tf32 (10 bits of mantissa, ties away from zero); sm_80 and later. */
__device__ __forceinline__ unsigned to_tf32(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
#else
  return __float_as_uint(x);
#endif
}

// ---- products of a warpgroup, sm_90a alone --------------------------------------------------------------------
// Four warps, the first a multiple of four, multiply a 64 x 16 matrix A in registers by a 16 x 64 matrix B in shared
// memory (PTX ISA, "Asynchronous warpgroup level matrix instructions"). Warp w has rows 16 w .. 16 w + 15, as fragments
// like those of mma above: A 16x16 as there, D as eight D 16x8 side by side. Products start where they are called and
// end by warpgroup_wait: till then A and D stay in their registers untouched and B in its place.
//
// B is read by the asynchronous proxy: who wrote it makes it visible by fence_for_async_reads, then a barrier follows.
// It lies in 128-byte lines of 64 elements, those at address a and chunk c of 16 bytes at c ^ (a / 128 mod 8), from a
// multiple of 1024 bytes on: line n holds the elements k of column n (N_MAJOR false), or line k the columns n.

/** Where B begins: 8 lines follow each other, the next 8 lie 1024 bytes on; swizzled by 128 bytes. */
__device__ __forceinline__ uint64_t warpgroup_operand(const void* p) {
  return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/** What this thread wrote to shared memory, copies that it has waited for among it, can be read asynchronously. */
__device__ __forceinline__ void fence_for_async_reads() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/** Products that follow read registers as they are now. */
__device__ __forceinline__ void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/** Closes the group of products since the last commit. */
__device__ __forceinline__ void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/** Waits until at most PENDING of the newest groups are unfinished. */
template <int PENDING>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
#define WGMMA_D                                                                   \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "      \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define WGMMA_REGISTERS(d)                                                    \
  "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), \
  "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), \
  "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), \
  "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), \
  "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), \
  "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), \
  "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), \
  "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
/** Keeps the compiler from moving what it does with D across this place. */
__device__ __forceinline__ void hold(float (*d)[4]) { asm volatile("" : WGMMA_REGISTERS(d)::"memory"); }
/** D = A B, or D += A B where add, of f16. */
template <bool N_MAJOR>
__device__ __forceinline__ void wgmma_f16(float (*d)[4], const unsigned (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %37, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " WGMMA_D ", {%32, %33, %34, %35}, %36, add, 1, 1, %38; }"
      : WGMMA_REGISTERS(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"((int)N_MAJOR)
      : "memory");
}
/** D = A B, or D += A B where add, of bf16. */
template <bool N_MAJOR>
__device__ __forceinline__ void wgmma_bf16(float (*d)[4], const unsigned (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %37, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_D ", {%32, %33, %34, %35}, %36, add, 1, 1, %38; }"
      : WGMMA_REGISTERS(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"((int)N_MAJOR)
      : "memory");
}
#endif

// ---- asynchronous copies ---------------------------------------------------------------------------------------

/**
 * Starts copying 16 bytes from global to shared memory, or writing 16 zero bytes where !valid (global is then not
 * read, but must still be a valid address). Both addresses are 16-byte aligned. Visible to the copying thread after
 * cp_async_wait, to others after a barrier that follows it.
 */
__device__ __forceinline__ void cp_async16(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
#else
  uint4 v = make_uint4(0, 0, 0, 0);
  if (valid) v = *static_cast<const uint4*>(global);
  *static_cast<uint4*>(shared) = v;
#endif
}

/** Closes the group of copies that this thread has started since the last commit. */
__device__ __forceinline__ void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/** Waits until at most PENDING of this thread's newest groups are unfinished. */
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/** 2^x to 2 ulp in one instruction; results below 2^-126 are 0. (exp2f spends two more on keeping those.) */
__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// ---- 16-byte shared memory accesses, whose bank conflicts the emulator counts ------------------------------------

__device__ __forceinline__ uint4 lds128(const void* shared) { return *static_cast<const uint4*>(shared); }
__device__ __forceinline__ float4 lds128_f32(const void* shared) { return *static_cast<const float4*>(shared); }
__device__ __forceinline__ void sts128(void* shared, uint4 value) { *static_cast<uint4*>(shared) = value; }
__device__ __forceinline__ void sts128(void* shared, float4 value) { *static_cast<float4*>(shared) = value; }

// ---- pairs of 16-bit values; lo is the lower half of the register --------------------------------------------------

__device__ __forceinline__ unsigned pack_f16x2(float lo, float hi) {
  __half2 h = __floats2half2_rn(lo, hi);
  return *reinterpret_cast<unsigned*>(&h);
}
__device__ __forceinline__ unsigned pack_bf16x2(float lo, float hi) {
  __nv_bfloat162 b = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<unsigned*>(&b);
}
#endif
