// Products of 16 x K by K x 8 matrices as a tensor core rounds them, for mma.sync and wgmma.
#pragma once
#include <cfenv>

#include "emu_ptx.h"
#include "scheduler.h"

namespace emu {

inline float f16_value(unsigned u) { return __half2float(__ushort_as_half((unsigned short)u)); }
inline float bf16_value(unsigned u) { return __bfloat162float(__ushort_as_bfloat16((unsigned short)u)); }

typedef float Row8 __attribute__((vector_size(32)));

/** The matrices of one mma with K columns in A, gathered from the fragments and multiplied. */
template <int K>
struct Product {
  float A[16][K];
  alignas(32) float B[K][8];
  alignas(32) float D[16][8];

  // a function of its own, since the compiler knows nothing of rounding modes
  __attribute__((noinline)) void multiply() {
    for (int i = 0; i < 16; i++) {
      Row8 sum;
      memcpy(&sum, D[i], sizeof sum);
      for (int k = 0; k < K; k++) {
        Row8 b;
        memcpy(&b, B[k], sizeof b);
        sum += A[i][k] * b;
      }
      memcpy(D[i], &sum, sizeof sum);
    }
  }

  void run(void* const* lanes) {
    for (int lane = 0; lane < 32; lane++) {
      const float* d = static_cast<Mma*>(lanes[lane])->d;
      int g = lane / 4, t = lane % 4;
      D[g][2 * t] = d[0];
      D[g][2 * t + 1] = d[1];
      D[g + 8][2 * t] = d[2];
      D[g + 8][2 * t + 1] = d[3];
    }
    fesetround(FE_TOWARDZERO);  // products are exact
    multiply();
    fesetround(FE_TONEAREST);
    for (int lane = 0; lane < 32; lane++) {
      float* d = static_cast<Mma*>(lanes[lane])->d;
      int g = lane / 4, t = lane % 4;
      d[0] = D[g][2 * t];
      d[1] = D[g][2 * t + 1];
      d[2] = D[g + 8][2 * t];
      d[3] = D[g + 8][2 * t + 1];
    }
    statistics.mmas++;
  }
};

/** A of the fragments of 16-bit values, those of Mma::a. */
inline void fragments_of_a(void* const* lanes, bool bf16, Product<16>& p) {
  auto value = [=](unsigned u) { return bf16 ? bf16_value(u) : f16_value(u); };
  for (int lane = 0; lane < 32; lane++) {
    const Mma& m = *static_cast<Mma*>(lanes[lane]);
    int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; r++) {
      int row = g + (r & 1) * 8, k = 2 * t + (r >> 1) * 8;
      p.A[row][k] = value(m.a[r] & 0xffff);
      p.A[row][k + 1] = value(m.a[r] >> 16);
    }
  }
}

}  // namespace emu
