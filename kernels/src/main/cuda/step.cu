// Between two passes of decoding: what the host would else have to set for every token, so that a step
// can be recorded once and replayed.
// Results go to a ring of them, in pinned memory of the host: no copy follows, and one recording serves every turn.
//
// A row stands at the token that was chosen last, which the next pass reads: its position is that of
// this token in the sequence, its place that of the token to be chosen after it in the whole run (the
// two part where the context slid). Kernel: step_advance_i32, one thread a row.
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(128)
    step_advance_i32(const int* ids,         // [R] as sample_v1_f32 left them
                     const float* logprobs,  // [R]
                     const int* ranks,       // [R]
                     const int* errors,      // [R]
                     const int* sequence,    // [R]
                     int* position,          // [R] += 1
                     int* place,             // [R] += 1
                     int* keys,              // [R] = position + 1
                     int4* segments,         // [R] = {r, 1, sequence, position}
                     int* turn,              // [R] which results the row's go to, then the next in the ring
                     int4* results,          // [turns, R], the turn's = {id, error, rank, bits of the logprob}
                     int turns, int R) {
  wait_for_previous();
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= R) return;
  const int next = position[r] + 1, now = (unsigned)turn[r] < (unsigned)turns ? turn[r] : 0;
  position[r] = next;
  place[r] += 1;
  keys[r] = next + 1;
  segments[r] = make_int4(r, 1, sequence[r], next);
  turn[r] = now + 1 < turns ? now + 1 : 0;
  results[(size_t)now * R + r] = make_int4(ids[r], errors[r], ranks[r], __float_as_int(logprobs[r]));
}
EXPORT_KERNEL(step_advance_i32)
