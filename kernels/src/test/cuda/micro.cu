// What a persistent decoding kernel would stand on, measured before it is written: the cost of one dependency
// of every block on every block, by each primitive that could carry it, and the rate at which a ring in
// shared memory streams weights. Not part of the product: MicroBenchmark times these kernels, and
// MicroBenchmarkTest checks that what they carry arrives.
//
// Dependencies: in each round every block hands a value on to every block, and uses what it got. Grid: G blocks
// that are all on the card at once (a cooperative launch), G <= threads of a block. Thread t < G reads what
// block t wrote; right[block, t] counts the rounds in which that was right, so all are N at the end. The values
// of a round lie in one of two buffers: who writes round r + 2 has seen all of r + 1, whose writers had read r.
// A wait ends after `limit` polls at the latest and sets *abort, which ends all others': a card never hangs.
//
// Below sm_80 cp.async is a plain copy (gpu.cuh), and the ring says nothing.
#include "gpu.cuh"

// ---- memory that other blocks write: PTX, and what the emulator does for it ------------------------------------
#if defined(__CUDACC__)
__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(unsigned* p, unsigned v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ void add_release(unsigned* p, unsigned v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ unsigned load_relaxed(const unsigned* p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_relaxed(unsigned* p, unsigned v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ unsigned long long load_relaxed(const unsigned long long* p) {
  unsigned long long v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_relaxed(unsigned long long* p, unsigned long long v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ __forceinline__ void other_blocks_run() {}  // they do
#else
inline unsigned load_acquire(const unsigned* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
inline void store_release(unsigned* p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
inline void add_release(unsigned* p, unsigned v) { __atomic_fetch_add(p, v, __ATOMIC_RELEASE); }
inline unsigned load_relaxed(const unsigned* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
inline void store_relaxed(unsigned* p, unsigned v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
inline unsigned long long load_relaxed(const unsigned long long* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
inline void store_relaxed(unsigned long long* p, unsigned long long v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
inline void other_blocks_run() { __nanosleep(0); }
#endif

/** True as soon as `ready` is; false after `limit` polls, or if another thread gave up. */
template <class Ready>
__device__ __forceinline__ bool wait_for(Ready ready, int limit, unsigned* abort) {
  for (int polls = 0; polls < limit; polls++) {
    if (ready()) return true;
    if (polls % 1024 == 1023 && load_relaxed(abort)) return false;
    other_blocks_run();
  }
  store_relaxed(abort, 1);
  return false;
}

/** What block `block` hands on in a round. */
__device__ __forceinline__ unsigned value_of(unsigned block, int round) { return round * 0x9E3779B9u + block; }

// A node of a graph of kernels: the edge is the end of one and the start of the next. in and out are [G] of two
// buffers in turn, right is [G, G].
extern "C" __global__ void __launch_bounds__(128)
    micro_node(const unsigned* in, unsigned* out, unsigned* right, int round) {
  const unsigned t = threadIdx.x;
  if (t < gridDim.x && in[t] == value_of(t, round - 1)) right[blockIdx.x * gridDim.x + t]++;
  if (t == 0) out[blockIdx.x] = value_of(blockIdx.x, round);
}
EXPORT_KERNEL(micro_node)

// One counter for all blocks, 0 before the launch; values is [2, G].
extern "C" __global__ void __launch_bounds__(128)
    micro_counter(unsigned* counter, unsigned* values, unsigned* right, unsigned* abort, int rounds, int limit) {
  const unsigned t = threadIdx.x, G = gridDim.x;
  unsigned count = 0;
  for (int round = 1; round <= rounds; round++) {
    unsigned* buffer = values + round % 2 * G;
    bool came = true;
    __syncthreads();  // all threads have read the last round
    if (t == 0) {
      store_relaxed(buffer + blockIdx.x, value_of(blockIdx.x, round));
      add_release(counter, 1);
      came = wait_for([=] { return load_acquire(counter) >= round * G; }, limit, abort);
    }
    if (!__syncthreads_and(came)) return;
    if (t < G) count += load_relaxed(buffer + t) == value_of(t, round);
  }
  if (t < G) right[blockIdx.x * G + t] = count;
}
EXPORT_KERNEL(micro_counter)

// A flag for each block, 0 before the launch: flags is [G], values [2, G].
extern "C" __global__ void __launch_bounds__(128)
    micro_flags(unsigned* flags, unsigned* values, unsigned* right, unsigned* abort, int rounds, int limit) {
  const unsigned t = threadIdx.x, G = gridDim.x;
  unsigned count = 0;
  for (int round = 1; round <= rounds; round++) {
    unsigned* buffer = values + round % 2 * G;
    if (t == 0) {
      store_relaxed(buffer + blockIdx.x, value_of(blockIdx.x, round));
      store_release(flags + blockIdx.x, round);
    }
    bool came = true;
    if (t < G) {
      came = wait_for([=] { return load_acquire(flags + t) >= (unsigned)round; }, limit, abort);
      count += load_relaxed(buffer + t) == value_of(t, round);
    }
    if (!__syncthreads_and(came)) return;
  }
  if (t < G) right[blockIdx.x * G + t] = count;
}
EXPORT_KERNEL(micro_flags)

// The value and its round in one word, which needs no order: words is [2, G], 0 before the launch.
extern "C" __global__ void __launch_bounds__(128)
    micro_words(unsigned long long* words, unsigned* right, unsigned* abort, int rounds, int limit) {
  const unsigned t = threadIdx.x, G = gridDim.x;
  unsigned count = 0;
  for (int round = 1; round <= rounds; round++) {
    unsigned long long* buffer = words + round % 2 * G;
    if (t == 0) {
      store_relaxed(buffer + blockIdx.x, (unsigned long long)round << 32 | value_of(blockIdx.x, round));
    }
    bool came = true;
    if (t < G) {
      unsigned long long word = 0;
      came = wait_for(
          [&] {
            word = load_relaxed(buffer + t);
            return word >> 32 == (unsigned)round;
          },
          limit, abort);
      count += (unsigned)word == value_of(t, round);
    }
    if (!__syncthreads_and(came)) return;
  }
  if (t < G) right[blockIdx.x * G + t] = count;
}
EXPORT_KERNEL(micro_words)

// ---- streaming: sums[block, thread] of the 32-bit words of x [chunks, CHUNK], chunk c read by block c % G -------

constexpr int THREADS = 256;
constexpr int VECTORS = 4;                       // of 16 bytes that a thread reads of a chunk
constexpr int CHUNK = THREADS * VECTORS * 16;    // bytes

__device__ __forceinline__ unsigned sum_of(uint4 v) { return v.x + v.y + v.z + v.w; }

extern "C" __global__ void __launch_bounds__(THREADS)
    micro_stream_plain(const uint4* __restrict__ x, unsigned* __restrict__ sums, int chunks) {
  unsigned sum = 0;
  for (int c = blockIdx.x; c < chunks; c += gridDim.x) {
    uint4 v[VECTORS];
    for (int i = 0; i < VECTORS; i++) v[i] = x[((size_t)c * VECTORS + i) * THREADS + threadIdx.x];
    for (int i = 0; i < VECTORS; i++) sum += sum_of(v[i]);
  }
  sums[blockIdx.x * THREADS + threadIdx.x] = sum;
}
EXPORT_KERNEL(micro_stream_plain)

/** A ring of STAGES chunks in shared memory; threads read what others have copied, as consumers of weights do. */
template <int STAGES>
__device__ __forceinline__ void stream_ring(const uint4* __restrict__ x, unsigned* __restrict__ sums, int chunks,
                                            unsigned char* ring) {
  const int t = threadIdx.x, other = (t + 32) % THREADS;
  auto fetch = [&](int turn) {
    const long long c = blockIdx.x + (long long)turn * gridDim.x;
    for (int i = 0; i < VECTORS && c < chunks; i++) {
      cp_async16(ring + turn % STAGES * CHUNK + (i * THREADS + t) * 16, x + (c * VECTORS + i) * THREADS + t, true);
    }
    cp_async_commit();  // an empty group too, so that each turn has one
  };
  for (int turn = 0; turn < STAGES; turn++) fetch(turn);
  unsigned sum = 0;
  for (int turn = 0; blockIdx.x + (long long)turn * gridDim.x < chunks; turn++) {
    cp_async_wait<STAGES - 1>();
    __syncthreads();
    for (int i = 0; i < VECTORS; i++) sum += sum_of(lds128(ring + turn % STAGES * CHUNK + (i * THREADS + other) * 16));
    __syncthreads();  // all have read the slot
    fetch(turn + STAGES);
  }
  sums[blockIdx.x * THREADS + t] = sum;
}

#define STREAM_RING(stages)                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS) micro_stream_ring##stages(                   \
      const uint4* __restrict__ x, unsigned* __restrict__ sums, int chunks) {                        \
    DYN_SMEM(ring);                                                                                  \
    stream_ring<stages>(x, sums, chunks, ring);                                                      \
  }                                                                                                  \
  EXPORT_KERNEL(micro_stream_ring##stages)
STREAM_RING(1)
STREAM_RING(2)
STREAM_RING(3)
STREAM_RING(4)
