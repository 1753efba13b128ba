// What a decode step needs besides the big kernels, so that it can be one graph, replayed with nothing
// from the host.
//
// advance  The last kernel of a step. Idea: throughout a step `position` is that of the token that the step
//          reads, which it found chosen by the one before; so moving on and handing over are both due at
//          the end, when nobody else reads or writes, and one launch does them.
// Limits: every row is in use. Gain: not yet measured.
#include "gpu.cuh"

// One thread a row.
extern "C" __global__ void __launch_bounds__(128)
    step_advance_i32(const int* __restrict__ ids,         // [R] of the step: what sample_v1_f32 wrote
                     const float* __restrict__ logprobs,  // [R]
                     const int* __restrict__ ranks,       // [R]
                     const int* __restrict__ errors,      // [R]
                     const int* __restrict__ sequences,   // [R] the row's sequence in the cache
                     int* __restrict__ positions,         // [R] of the token read; += 1
                     int* __restrict__ keys,              // [R] position + 1: keys that the row attends to
                     int4* __restrict__ segments,         // [R] {row, 1, sequence, position}
                     int4* __restrict__ results,          // [R] {id, error, rank, bits of logprob}
                     int R) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= R) return;
  results[r] = make_int4(ids[r], errors[r], ranks[r], __float_as_int(logprobs[r]));
  const int position = positions[r] + 1;
  positions[r] = position;
  keys[r] = position + 1;
  segments[r] = make_int4(r, 1, sequences[r], position);
}
EXPORT_KERNEL(step_advance_i32)
