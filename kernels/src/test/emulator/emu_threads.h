// Thread indices, barriers, warp shuffles and votes, atomics, fences.
#pragma once
#include "emu_types.h"

namespace emu __attribute__((visibility("default"))) {  // a library of mutants has only these of the emulator

/** A place in a kernel's source, taken as a default argument: every report carries it. */
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Site& o) const { return line == o.line && (file == o.file || !strcmp(file, o.file)); }
};
#define EMU_SITE emu::Site site = emu::Site::here()

/** What the running CUDA thread knows of itself. */
struct Thread {
  uint3 thread_index, block_index;
  dim3 block_size, grid_size;
  unsigned lane;
  unsigned char* shared;
  unsigned shared_bytes;
};
/** The running thread; null while host code runs. Only one launch runs at a time, so this is one variable. */
extern Thread* current;

/** Runs once all lanes of the mask have arrived; lanes[i] is lane i's payload, null if i is not in the mask. */
typedef void (*WarpOperation)(void* const* lanes, unsigned mask);

/**
 * Brings the lanes of mask together and lets the last one run the operation. With orders_memory
 * (only __syncwarp) what a lane wrote before is seen by the others after; shuffles and mma promise no such
 * thing in CUDA, so TSan is not told of any.
 */
void warp_collective(WarpOperation operation, const char* name, unsigned mask, void* payload, bool orders_memory,
                     Site site);

enum class Reduce { none, count, any, all };
/** bar.sync id, threads; threads = 0 means the whole block. Returns the reduction of value over the barrier. */
int block_barrier(int id, int threads, Reduce reduce, int value, const char* name, Site site);
/** bar.arrive: counts at a barrier and goes on. */
void block_arrive(int id, int threads, Site site);
/** Barrier over all blocks of a cooperative launch. */
void grid_barrier(Site site);
void previous_wait(Site site);
/** Orders memory for TSan: what any thread did before its fence is seen by who fences later. */
void fence();
/** Lets other threads run; for loops that wait for memory to change. */
void spin(Site site);
/** Ends the launch with an error of this text; the thread that calls never returns. */
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

void operation_none(void* const*, unsigned);
struct Shuffle {
  uint64_t value, result;
  unsigned source;
};
void operation_shuffle(void* const* lanes, unsigned mask);
struct Vote {
  bool predicate;
  unsigned result;
};
void operation_ballot(void* const* lanes, unsigned mask);

template <class T>
inline T shuffle(const char* name, unsigned mask, T value, unsigned source, Site site) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  Shuffle s{0, 0, source};
  memcpy(&s.value, &value, sizeof value);
  warp_collective(operation_shuffle, name, mask, &s, false, site);
  T result;
  memcpy(&result, &s.result, sizeof result);
  return result;
}

inline unsigned ballot(const char* name, unsigned mask, bool predicate, Site site) {
  Vote v{predicate, 0};
  warp_collective(operation_ballot, name, mask, &v, false, site);
  return v.result;
}
}  // namespace emu

#define threadIdx (emu::current->thread_index)
#define blockIdx (emu::current->block_index)
#define blockDim (emu::current->block_size)
#define gridDim (emu::current->grid_size)
#define warpSize 32
#define DYN_SMEM(name) unsigned char* name = emu::current->shared

// ---- barriers ----
inline void __syncthreads(EMU_SITE) { emu::block_barrier(0, 0, emu::Reduce::none, 0, "__syncthreads", site); }
inline int __syncthreads_count(int p, EMU_SITE) {
  return emu::block_barrier(0, 0, emu::Reduce::count, p, "__syncthreads_count", site);
}
inline int __syncthreads_or(int p, EMU_SITE) {
  return emu::block_barrier(0, 0, emu::Reduce::any, p, "__syncthreads_or", site);
}
inline int __syncthreads_and(int p, EMU_SITE) {
  return emu::block_barrier(0, 0, emu::Reduce::all, p, "__syncthreads_and", site);
}
inline void named_barrier(int id, int threads, EMU_SITE) {
  emu::block_barrier(id, threads, emu::Reduce::none, 0, "named_barrier", site);
}
inline void named_arrive(int id, int threads, EMU_SITE) { emu::block_arrive(id, threads, site); }
inline void grid_sync(EMU_SITE) { emu::grid_barrier(site); }
inline void wait_for_previous(EMU_SITE) { emu::previous_wait(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) {
  emu::warp_collective(emu::operation_none, "__syncwarp", mask, nullptr, true, site);
}

// ---- shuffles and votes; width splits the warp into groups of that many lanes, as in CUDA ----
template <class T>
inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, EMU_SITE) {
  unsigned lane = emu::current->lane, w = (unsigned)width;
  return emu::shuffle("__shfl_sync", mask, v, (lane & ~(w - 1)) | ((unsigned)source & (w - 1)), site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, EMU_SITE) {
  unsigned lane = emu::current->lane, w = (unsigned)width, source = lane ^ (unsigned)lanes;
  // CUDA: a lane may read from its own or an earlier group, and gets its own value where the source is in a later one
  return emu::shuffle("__shfl_xor_sync", mask, v, source <= (lane | (w - 1)) ? source : lane, site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, EMU_SITE) {
  unsigned lane = emu::current->lane, w = (unsigned)width, source = lane + delta;
  return emu::shuffle("__shfl_down_sync", mask, v, source <= (lane | (w - 1)) ? source : lane, site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, EMU_SITE) {
  unsigned lane = emu::current->lane, w = (unsigned)width, in_group = lane & (w - 1);
  return emu::shuffle("__shfl_up_sync", mask, v, in_group >= delta ? lane - delta : lane, site);
}
inline unsigned __ballot_sync(unsigned mask, int p, EMU_SITE) {
  return emu::ballot("__ballot_sync", mask, p != 0, site);
}
inline int __any_sync(unsigned mask, int p, EMU_SITE) { return emu::ballot("__any_sync", mask, p != 0, site) != 0; }
inline int __all_sync(unsigned mask, int p, EMU_SITE) {
  return emu::ballot("__all_sync", mask, p != 0, site) == mask;
}

// ---- integer atomics. No float ones: the order of their additions is not fixed, and results must not vary ----
#define EMU_ATOMICS(type)                                                                        \
  inline type atomicAdd(type* p, type v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }   \
  inline type atomicSub(type* p, type v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }   \
  inline type atomicOr(type* p, type v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }     \
  inline type atomicAnd(type* p, type v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }   \
  inline type atomicExch(type* p, type v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); } \
  inline type atomicCAS(type* p, type expected, type v) {                                         \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);      \
    return expected;                                                                              \
  }                                                                                               \
  inline type atomicMax(type* p, type v) {                                                        \
    type old = __atomic_load_n(p, __ATOMIC_RELAXED);                                              \
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                             \
    return old;                                                                                   \
  }                                                                                               \
  inline type atomicMin(type* p, type v) {                                                        \
    type old = __atomic_load_n(p, __ATOMIC_RELAXED);                                              \
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                             \
    return old;                                                                                   \
  }
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
/** atomicInc: wraps to 0 after limit. */
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  unsigned old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, old >= limit ? 0u : old + 1u, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}
inline void __threadfence() { emu::fence(); }
inline void __threadfence_block() { emu::fence(); }
inline void __nanosleep(unsigned, EMU_SITE) { emu::spin(site); }
