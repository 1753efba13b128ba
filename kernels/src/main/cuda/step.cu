// Between two passes of decoding: what the host would else have to set for every token, so that a step
// can be recorded once and replayed.
//
// A row stands at the token that was chosen last, which the next pass reads: its position is that of
// this token in the sequence, its place that of the token to be chosen after it in the whole run (the
// two part where the context slid). Kernel: step_advance_i32, one thread a row.
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(128)
    step_advance_i32(const int* __restrict__ ids,        // [R] as sample_v1_f32 left them
                     const float* __restrict__ logprobs,  // [R]
                     const int* __restrict__ ranks,       // [R]
                     const int* __restrict__ errors,      // [R]
                     const int* __restrict__ sequence,    // [R]
                     int* __restrict__ position,          // [R] += 1
                     int* __restrict__ place,             // [R] += 1
                     int* __restrict__ keys,              // [R] = position + 1
                     int4* __restrict__ segments,         // [R] = {r, 1, sequence, position}
                     int4* __restrict__ result,           // [R] = {id, error, rank, bits of the logprob}
                     int R) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= R) return;
  const int next = position[r] + 1;
  position[r] = next;
  place[r] += 1;
  keys[r] = next + 1;
  segments[r] = make_int4(r, 1, sequence[r], next);
  result[r] = make_int4(ids[r], errors[r], ranks[r], __float_as_int(logprobs[r]));
}
EXPORT_KERNEL(step_advance_i32)
