// From logits to the next token: softmax, argmax, and the whole of sampling.
//
// All logits are f32 [R, stride], row r's V logits from r stride on. A row belongs to one block of a
// power of two of 64 to 1024 threads. Bit sets are words of 32 ids, id i in bit i % 32 of word i / 32.
#include "element.cuh"

namespace {

constexpr int kBins = 2048;             // of a histogram: 11 bits a level
constexpr double kUnit = 1099511627776.0;  // 2^40: what a probability weight of 1 counts as a mass

// ---- One row of logits and what applies to it.

// SamplingOptions as the device has them, 32 bytes; SamplingOptions.java writes them.
struct Options {
  float temperature;  // 0: the most likely token
  int top_k;          // 0: all
  double top_p;
  float least;  // score that min-p keeps; -infinity: all
  float penalty;
  long long seed;
};
static_assert(sizeof(Options) == 32, "SamplingOptions.INTS");

struct Row {
  const float* logits;      // [V]
  const unsigned* allowed;  // [ceil(V / 32)] ids that may be chosen; null: all
  const unsigned* seen;     // [ceil(V / 32)] ids that the penalty applies to; null: none
  int V;
  float penalty, temperature;
  float max;    // of the penalised logits of allowed ids
  float* kept;  // [keeps] in shared memory: scores of the first ids; NaN where there is none
  int keeps;    // a multiple of 4
};

__device__ __forceinline__ unsigned four_bits(const unsigned* set, int id) {
  return set[id >> 5] >> (id & 31) & 15u;  // id is a multiple of 4
}

// The logits of ids id .. id + 3; returns a bit for each that is less than V. id is a multiple of 4.
__device__ __forceinline__ unsigned four_logits(const Row& row, int id, float (&x)[4]) {
  if (id + 4 <= row.V && aligned16(row.logits)) {
    load16(row.logits + id, x);
    return 15u;
  }
  unsigned there = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x[i] = 0;
    if (id + i < row.V) {
      x[i] = row.logits[id + i];
      there |= 1u << i;
    }
  }
  return there;
}

// Turns logits into penalised logits; returns those of `there` that are allowed.
__device__ __forceinline__ unsigned penalise(const Row& row, int id, unsigned there, float (&x)[4]) {
  if (row.allowed) there &= four_bits(row.allowed, id);
  if (row.seen && row.penalty != 1.0f) {
    const unsigned seen = four_bits(row.seen, id);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (seen >> i & 1) x[i] = x[i] < 0 ? __fmul_rn(x[i], row.penalty) : __fdiv_rn(x[i], row.penalty);
  }
  return there;
}

// Scores: penalised logits less their largest, over the temperature. At most 0. Rounded as on the CPU: no
// fused multiply-add, true division.
__device__ __forceinline__ unsigned new_scores(const Row& row, int id, float (&x)[4]) {
  const unsigned there = penalise(row, id, four_logits(row, id, x), x);
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = __fdiv_rn(__fsub_rn(x[i], row.max), row.temperature);
  return there;
}

// Makes the scores that are kept. Each thread those that it looks at itself later: no barrier is needed but
// where a thread looks at another's.
__device__ __forceinline__ void keep_scores(const Row& row) {
#pragma unroll 1
  for (int id = threadIdx.x * 4; id < row.keeps; id += blockDim.x * 4) {
    float x[4];
    const unsigned there = new_scores(row, id, x);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (!(there >> i & 1)) x[i] = NAN;
    sts128(row.kept + id, make_float4(x[0], x[1], x[2], x[3]));
  }
}

__device__ __forceinline__ unsigned four_scores(const Row& row, int id, float (&x)[4]) {
  if (id >= row.keeps) return new_scores(row, id, x);
  const float4 v = lds128_f32(row.kept + id);
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  unsigned there = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) there |= (unsigned)(x[i] == x[i]) << i;
  return there;
}

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// ---- Reductions over a block whose result does not depend on their order.

// The largest value and, among equals, the lowest id.
template <class T>
struct Best {
  T value;
  int id;  // -1: none
};

template <class T>
__device__ __forceinline__ Best<T> better(Best<T> a, Best<T> b) {
  if (b.id < 0) return a;
  if (a.id < 0) return b;
  return a.value > b.value || (a.value == b.value && a.id < b.id) ? a : b;
}

struct Shared {
  unsigned long long mass[kBins];  // of a histogram's bins
  unsigned count[kBins];
  double value[32];  // one a warp
  int number[32];
  unsigned long long part[32];
  unsigned long long remaining;  // of the count or mass to reach within the chosen bin
  unsigned chosen, in_chosen;    // bin, and how many there are in it
  int id;
  float score;
  int unused[2];  // what follows begins at a multiple of 16 bytes
};

// SampleKernels.java asks for this much shared memory.
static_assert(sizeof(Shared) == 25248, "SHARED_BYTES in SampleKernels.java");

template <class T>
__device__ Best<T> block_best(Best<T> best, Shared& s) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) {
    Best<T> other;
    other.value = __shfl_xor_sync(0xffffffffu, best.value, d);
    other.id = __shfl_xor_sync(0xffffffffu, best.id, d);
    best = better(best, other);
  }
  if (threadIdx.x % 32 == 0) {
    s.value[threadIdx.x / 32] = best.value;
    s.number[threadIdx.x / 32] = best.id;
  }
  __syncthreads();
  for (unsigned w = 0; w < blockDim.x / 32; w++) {
    const Best<T> other = {static_cast<T>(s.value[w]), s.number[w]};
    best = better(best, other);
  }
  __syncthreads();
  return best;
}

__device__ int block_count(int n, Shared& s) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) n += __shfl_xor_sync(0xffffffffu, n, d);
  if (threadIdx.x % 32 == 0) s.number[threadIdx.x / 32] = n;
  __syncthreads();
  n = 0;
  for (unsigned w = 0; w < blockDim.x / 32; w++) n += s.number[w];
  __syncthreads();
  return n;
}

// ---- Selection by histograms of counts and of fixed-point masses: integers, whose sums have no order.

// Scores are at most 0, so their bits as unsigned numbers rise as they fall; -0, to which a large
// temperature rounds the smallest, comes after 0, as in the CPU's order.
//
// The tokens by falling score, then rising id, as digits of 11 bits at most: three of the score in fixed
// point (evenly spread, so that few threads meet in one bin), three of its bits as a float (where fixed
// point is too coarse), two of the id. A prefix of the digits is kept as wanted bits under a mask.
struct Prefix {
  unsigned fixed, fixed_mask, bits, bits_mask, id, id_mask;
};

__device__ __forceinline__ unsigned fixed_point(float score) {
  const float x = -score * 134217728.0f;  // 2^27, so up to 32 nats; exact
  return x >= 4294967040.0f ? 0xffffffffu : (unsigned)x;
}

__device__ __forceinline__ bool matches(const Prefix& p, float score, int id) {
  return ((fixed_point(score) ^ p.fixed) & p.fixed_mask) == 0 &&
         ((__float_as_uint(score) ^ p.bits) & p.bits_mask) == 0 &&
         (((unsigned)id ^ p.id) & p.id_mask) == 0;
}

__device__ __forceinline__ int shift_of(int level) {
  const int digit = level % 3;
  return level < 6 ? (digit == 0 ? 21 : digit == 1 ? 10 : 0) : (level == 6 ? 11 : 0);
}

__device__ __forceinline__ unsigned width_mask(int level) {
  return level == 2 || level == 5 ? 1023u : 2047u;
}

__device__ __forceinline__ unsigned digit_of(int level, float score, int id) {
  const unsigned key = level < 3 ? fixed_point(score) : level < 6 ? __float_as_uint(score) : (unsigned)id;
  return key >> shift_of(level) & width_mask(level);
}

__device__ __forceinline__ void extend(Prefix& p, int level, unsigned digit) {
  const int shift = shift_of(level);
  const unsigned mask = width_mask(level) << shift;
  if (level < 3) {
    p.fixed |= digit << shift, p.fixed_mask |= mask;
  } else if (level < 6) {
    p.bits |= digit << shift, p.bits_mask |= mask;
  } else {
    p.id |= digit << shift, p.id_mask |= mask;
  }
}

// exp(score) in units of 2^-40. Large weights in f64; of the small ones f32 has as many digits as count.
__device__ __forceinline__ unsigned long long mass_of(float score) {
  if (score > -8.0f) return (unsigned long long)(exp((double)score) * kUnit + 0.5);
  return (unsigned long long)(expf(score) * (float)kUnit + 0.5f);
}

// Finds the bin in which the running count (or mass) first reaches the target. At the first level of a
// selection by mass the target is the share p of the total.
template <bool by_mass>
__device__ __forceinline__ void choose_bin(bool first, double p, Shared& s) {
  const int per_thread = kBins / blockDim.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned long long own = 0;
#pragma unroll 1
  for (int i = 0; i < per_thread; i++) {
    const int bin = threadIdx.x * per_thread + i;
    own += by_mass ? s.mass[bin] : s.count[bin];
  }
  unsigned long long before = own;  // this thread's bins and those before them in its warp
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const unsigned long long other = __shfl_up_sync(0xffffffffu, before, d);
    if (lane >= d) before += other;
  }
  if (lane == 31) s.part[warp] = before;
  const unsigned long long left = s.remaining;
  __syncthreads();
  before -= own;
  unsigned long long total = 0;
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    if (w < warp) before += s.part[w];
    total += s.part[w];
  }
  unsigned long long target = left;
  if (by_mass && first) {
    target = (unsigned long long)ceil(p * (double)total);
    target = target < 1 ? 1 : target > total ? total : target;
  }
#pragma unroll 1
  for (int i = 0; i < per_thread; i++) {
    const int bin = threadIdx.x * per_thread + i;
    const unsigned long long here = by_mass ? s.mass[bin] : s.count[bin];
    if (before < target && target <= before + here) {  // in one bin of one thread
      s.chosen = bin;
      s.in_chosen = s.count[bin];
      s.remaining = target - before;
    }
    before += here;
  }
  __syncthreads();
}

// What is kept: scores of at least `least`, and of those what does not come after a token, given by the
// bits of its score and its id.
struct Kept {
  float least;
  unsigned bits, id;
};

__device__ __forceinline__ bool keeps(const Kept& k, float score, int id) {
  const unsigned bits = __float_as_uint(score);
  return score >= k.least && (bits < k.bits || (bits == k.bits && (unsigned)id <= k.id));
}

// The token at which the count of kept tokens, by falling score, reaches k, or their mass the share p of
// the whole; its id is that of any token of its score if by count. Leaves it in s.score and s.id.
template <bool by_mass>
__device__ __forceinline__ void select_token(const Row& row, const Kept& kept, int k, double p, Shared& s) {
  Prefix prefix = {0, 0, 0, 0, 0, 0};
  if (threadIdx.x == 0) s.remaining = k;
  const int levels = by_mass ? 8 : 6;
  for (int level = 0; level < levels; level++) {
    for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) s.count[bin] = 0, s.mass[bin] = 0;
    __syncthreads();
#pragma unroll 1
    for (int id = threadIdx.x * 4; id < row.V; id += blockDim.x * 4) {
      float x[4];
      const unsigned there = four_scores(row, id, x);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if ((there >> i & 1) && keeps(kept, x[i], id + i) && matches(prefix, x[i], id + i)) {
          const unsigned digit = digit_of(level, x[i], id + i);
          atomicAdd(&s.count[digit], 1u);
          if (by_mass) atomicAdd(&s.mass[digit], mass_of(x[i]));
        }
      }
    }
    __syncthreads();
    choose_bin<by_mass>(level == 0, p, s);
    extend(prefix, level, s.chosen);
    if (s.in_chosen == 1) break;
  }
  // One token is left, which is looked up, or (by count) several of one score, which the prefix has.
  if (s.in_chosen != 1) {
    if (threadIdx.x == 0) s.score = __uint_as_float(prefix.bits);
  } else {
#pragma unroll 1
    for (int id = threadIdx.x * 4; id < row.V; id += blockDim.x * 4) {
      float x[4];
      const unsigned there = four_scores(row, id, x);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if ((there >> i & 1) && keeps(kept, x[i], id + i) && matches(prefix, x[i], id + i)) {
          s.score = x[i];
          s.id = id + i;
        }
      }
    }
  }
  __syncthreads();
}

// ---- Noise.

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011).
__device__ __forceinline__ void philox(unsigned long long key, uint4 counter, unsigned (&out)[4]) {
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned long long p0 = 0xD2511F53ull * counter.x, p1 = 0xCD9E8D57ull * counter.z;
    counter.x = (unsigned)(p1 >> 32) ^ counter.y ^ k0;
    counter.y = (unsigned)p1;
    counter.z = (unsigned)(p0 >> 32) ^ counter.w ^ k1;
    counter.w = (unsigned)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = counter.x, out[1] = counter.y, out[2] = counter.z, out[3] = counter.w;
}

// Standard Gumbel noise from 32 random bits, u = (bits + 1/2) / 2^32.
__device__ __forceinline__ double gumbel(unsigned bits) {
  return -log(-log((bits + 0.5) * 2.3283064365386963e-10));
}

// The same to about 1e-4. Near u = 1, -log(u) is taken from 1 - u, which has all its digits.
__device__ __forceinline__ float gumbel_roughly(unsigned bits) {
  const float v = ((float)~bits + 0.5f) * 2.3283064e-10f;  // 1 - u
  const float t = v < 0.01f ? v * (1.0f + v * (0.5f + v * 0.33333333f))
                            : -__logf(((float)bits + 0.5f) * 2.3283064e-10f);
  return -__logf(t);
}

// What rough values may differ by, with much to spare; the more, the more exact values are computed.
constexpr float kMargin = 0.01f;

// Calls f(id, score, bits) for every kept token of this thread.
template <class F>
__device__ __forceinline__ void each_kept(const Row& row, const Kept& kept, unsigned long long seed, int sample,
                                          int position, F f) {
#pragma unroll 1
  for (int id = threadIdx.x * 4; id < row.V; id += blockDim.x * 4) {
    float x[4];
    unsigned there = four_scores(row, id, x);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (!keeps(kept, x[i], id + i)) there &= ~(1u << i);
    if (there == 0) continue;
    unsigned bits[4];
    philox(seed, make_uint4((unsigned)id >> 2, position, sample, 0), bits);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (there >> i & 1) f(id + i, x[i], bits[i]);
  }
}

// Gumbel-max (Maddison, Tarlow and Minka, arXiv 1411.0030): the kept token with the largest sum of score
// and noise; -1 if there is none. The noise in f64 costs far more than all else here, so it is computed
// only for the tokens whose rough value comes near the largest: one or two, since the gaps between the
// largest values do not depend on V. That the list would not hold them has a chance of 10^-4000.
__device__ __forceinline__ int draw(const Row& row, const Kept& kept, unsigned long long seed, int sample,
                                    int position, Shared& s) {
  if (threadIdx.x == 0) s.chosen = 0;
  float highest = -INFINITY;  // of this thread's rough values
  each_kept(row, kept, seed, sample, position,
            [&](int, float score, unsigned bits) { highest = fmaxf(highest, score + gumbel_roughly(bits)); });
  const float limit = block_max(highest, reinterpret_cast<float*>(s.part)) - kMargin;
  if (highest >= limit) {
    each_kept(row, kept, seed, sample, position, [&](int id, float score, unsigned bits) {
      if (score + gumbel_roughly(bits) >= limit) {
        const unsigned place = atomicAdd(&s.chosen, 1u);
        if (place < kBins) s.count[place] = id;
      }
    });
  }
  __syncthreads();
  Best<double> best = {0, -1};
  for (unsigned i = threadIdx.x; i < min(s.chosen, (unsigned)kBins); i += blockDim.x) {
    const int id = s.count[i], of = id & 3;
    float x[4];
    unsigned bits[4];
    four_scores(row, id - of, x);
    philox(seed, make_uint4((unsigned)id >> 2, position, sample, 0), bits);
    const float score = of == 0 ? x[0] : of == 1 ? x[1] : of == 2 ? x[2] : x[3];
    const unsigned word = of == 0 ? bits[0] : of == 1 ? bits[1] : of == 2 ? bits[2] : bits[3];
    const Best<double> other = {score + gumbel(word), id};
    best = better(best, other);
  }
  return block_best(best, s).id;
}

// ---- The row as a whole.

// The largest penalised logit of an allowed id; also the largest logit of all, and how many are allowed.
// False if a logit is NaN or infinite.
__device__ bool scan(const Row& row, Best<float>& best, float& largest, int& allowed, Shared& s) {
  best.value = 0, best.id = -1;
  largest = -INFINITY;
  int n = 0, wrong = 0;
#pragma unroll 1
  for (int id = threadIdx.x * 4; id < row.V; id += blockDim.x * 4) {
    float x[4];
    unsigned there = four_logits(row, id, x);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (!(there >> i & 1)) continue;
      if (!is_finite(x[i])) wrong++;
      largest = fmaxf(largest, x[i]);
    }
    there = penalise(row, id, there, x);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (!(there >> i & 1)) continue;
      n++;
      const Best<float> other = {x[i], id + i};
      best = better(best, other);
    }
  }
  largest = block_max(largest, reinterpret_cast<float*>(s.part));
  best = block_best(best, s);
  allowed = block_count(n, s);
  return block_count(wrong, s) == 0;
}

// Calls f(logit) for every logit of this thread.
template <class F>
__device__ __forceinline__ void each_logit(const Row& row, F f) {
#pragma unroll 1
  for (int id = threadIdx.x * 4; id < row.V; id += blockDim.x * 4) {
    float x[4];
    const unsigned there = four_logits(row, id, x);
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (there >> i & 1) f(x[i]);
  }
}

// The natural log of the probability of `id` by the softmax of all logits, and how many are larger.
__device__ void describe(const Row& row, int id, float largest, float* logprob, int* rank, Shared& s) {
  const float own = row.logits[id];
  float sum = 0;
  int larger = 0;
  each_logit(row, [&](float x) {
    sum += expf(x - largest);
    larger += x > own;
  });
  sum = block_sum(sum, reinterpret_cast<float*>(s.part));
  larger = block_count(larger, s);
  if (threadIdx.x == 0) {
    *logprob = (own - largest) - logf(sum);
    *rank = larger;
  }
}

}  // namespace

// Sampling as the CPU's Sampler does it: repetition penalty, temperature, top-k (ties with the last are
// kept), top-p (up to and with the token that reaches p), min-p, Gumbel-max keyed by seed, sample,
// position and id. Temperature 0 takes the most likely token, the lowest id among equals. Only counts,
// masses in fixed point and exact comparisons decide, so neither the block's width nor the order of its
// threads can change a token.
//
// v1. One block a row, a pass over the row for each level of a histogram. Scores are made once and stay in
// shared memory, as many as it has room for; those of the other ids are made anew in each pass.
// Shared memory: sizeof(Shared) and `keeps` floats, see SampleKernels.java. Limits: V up to 2^22. Gain: not yet measured.
extern "C" __global__ void __launch_bounds__(1024)
    sample_v1_f32(const float* logits,      // [R, stride]
                  const unsigned* allowed,  // [ceil(V / 32)], or null
                  unsigned* seen,           // [R, ceil(V / 32)], or null; gets the chosen id
                  const int* samples,       // [R] number of the row's sample
                  const int* positions,     // [R] place of the chosen token
                  int* ids,                 // [R] the token; -1 after an error
                  float* logprobs,          // [R] its log probability; NaN after an error
                  int* ranks,               // [R] tokens more likely; -1 after an error
                  int* errors,              // [R] 1: NaN or infinity, 2: no id to choose, 0: none
                  const Options* options,   // [R] in memory, so that a recorded launch takes new ones
                  int V, int stride, int keeps) {
  wait_for_previous();
  DYN_SMEM(smem);
  Shared& s = *reinterpret_cast<Shared*>(smem);
  const size_t r = blockIdx.x;
  const Options o = options[r];
  const size_t words = ((size_t)V + 31) / 32;
  Row row = {logits + r * stride, allowed, seen ? seen + r * words : nullptr, V, o.penalty, o.temperature, 0,
             reinterpret_cast<float*>(smem + sizeof(Shared)), keeps};

  Best<float> best;
  float largest;
  int n;
  int error = scan(row, best, largest, n, s) ? 0 : 1;
  row.max = best.value;
  // A penalty may overflow: then there is a largest, but no differences from it.
  if (error == 0 && (best.id < 0 || (o.temperature > 0 && !is_finite(best.value)))) error = 2;
  if (error == 0 && o.temperature > 0) {
    keep_scores(row);
    Kept kept = {-INFINITY, 0xffffffffu, 0xffffffffu};
    if (o.top_k > 0 && o.top_k < n) {
      select_token<false>(row, kept, o.top_k, 0, s);
      kept.least = s.score;
    }
    if (o.top_p < 1) {
      select_token<true>(row, kept, 0, o.top_p, s);
      kept.bits = __float_as_uint(s.score);
      kept.id = s.id;
    }
    kept.least = fmaxf(kept.least, o.least);
    best.id = draw(row, kept, o.seed, samples[r], positions[r], s);
  }
  if (error == 0) describe(row, best.id, largest, logprobs + r, ranks + r, s);
  if (threadIdx.x == 0) {
    ids[r] = error ? -1 : best.id;
    errors[r] = error;
    if (error) {
      logprobs[r] = NAN;
      ranks[r] = -1;
    } else if (seen) {
      seen[r * words + (best.id >> 5)] |= 1u << (best.id & 31);
    }
  }
}
EXPORT_KERNEL(sample_v1_f32)

// The id of the largest logit among the allowed ones, the lowest among equals. One block a row.
// Shared memory: sizeof(Shared). Limits: none. Gain: not yet measured.
extern "C" __global__ void __launch_bounds__(1024)
    sample_argmax_f32(const float* __restrict__ logits,      // [R, stride]
                      const unsigned* __restrict__ allowed,  // [ceil(V / 32)], or null
                      int* ids,                              // [R]; -1 after an error
                      int* errors,                           // [R] as for sample_v1_f32
                      int V, int stride) {
  DYN_SMEM(smem);
  Shared& s = *reinterpret_cast<Shared*>(smem);
  const Row row = {logits + (size_t)blockIdx.x * stride, allowed, nullptr, V, 1, 1, 0, nullptr, 0};
  Best<float> best;
  float largest;
  int n;
  const int error = scan(row, best, largest, n, s) ? (best.id < 0 ? 2 : 0) : 1;
  if (threadIdx.x == 0) {
    ids[blockIdx.x] = error ? -1 : best.id;
    errors[blockIdx.x] = error;
  }
}
EXPORT_KERNEL(sample_argmax_f32)

// y = softmax(x / temperature), or its natural log. One block a row, three passes over it: largest, sum,
// result. A row with NaN or +infinity gives NaN throughout. y may be x.
// Shared memory: one float a warp. Limits: none. Gain: not yet measured.
extern "C" __global__ void __launch_bounds__(1024)
    sample_softmax_f32(const float* x,  // [R, stride]
                       float* y,        // [R, stride]
                       int V, int stride, float temperature, int log) {
  DYN_SMEM(smem);
  float* scratch = reinterpret_cast<float*>(smem);
  x += (size_t)blockIdx.x * stride;
  y += (size_t)blockIdx.x * stride;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < V; i += blockDim.x) largest = fmaxf(largest, x[i]);
  largest = block_max(largest, scratch);
  float sum = 0;
  for (int i = threadIdx.x; i < V; i += blockDim.x) sum += expf((x[i] - largest) / temperature);
  sum = block_sum(sum, scratch);
  const float log_sum = logf(sum), scale = 1.0f / sum;
  for (int i = threadIdx.x; i < V; i += blockDim.x) {
    const float score = (x[i] - largest) / temperature;
    y[i] = log ? score - log_sum : expf(score) * scale;
  }
}
EXPORT_KERNEL(sample_softmax_f32)

// The natural log of the probability of one id of each row by the softmax of its logits. One block a row,
// two passes over it: largest, sum. A row with NaN or +infinity gives NaN.
// Shared memory: one float a warp. Limits: none. Gain: not yet measured.
extern "C" __global__ void __launch_bounds__(1024)
    sample_logprob_f32(const float* __restrict__ logits,  // [R, stride]
                       const int* __restrict__ ids,       // [R]; negative: none
                       float* logprobs,                   // [R]; NaN where there is no id
                       int V, int stride) {
  DYN_SMEM(smem);
  float* scratch = reinterpret_cast<float*>(smem);
  const size_t r = blockIdx.x;
  const int id = ids[r];
  if (id < 0) {
    if (threadIdx.x == 0) logprobs[r] = NAN;
    return;
  }
  const Row row = {logits + r * stride, nullptr, nullptr, V, 1, 1, 0, nullptr, 0};
  float largest = -INFINITY;
  each_logit(row, [&](float x) { largest = fmaxf(largest, x); });
  largest = block_max(largest, scratch);
  float sum = 0;
  each_logit(row, [&](float x) { sum += expf(x - largest); });
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) logprobs[r] = (row.logits[id] - largest) - logf(sum);
}
EXPORT_KERNEL(sample_logprob_f32)
