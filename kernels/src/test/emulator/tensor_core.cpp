// ldmatrix and mma.sync: what the last arriving lane does for its warp, with the fragment layouts of the PTX ISA
// (drawn in gpu.cuh). Accumulation is in f32 in order of k, and every sum is cut off, towards zero: a real tensor core
// cuts off, too, though once for some products together (Fasi et al., PeerJ Computer Science 7:e330).
#include <cfenv>

#include "emu_ptx.h"
#include "scheduler.h"

namespace emu {

static LoadMatrix& load(void* const* lanes, int lane) { return *static_cast<LoadMatrix*>(lanes[lane]); }

static void ldmatrix_x4(void* const* lanes, bool transposed) {
  const unsigned char* shared = running().view.shared;
  for (int m = 0; m < 4; m++) {
    uint32_t offsets[8];
    for (int r = 0; r < 8; r++) {
      offsets[r] = static_cast<const unsigned char*>(load(lanes, m * 8 + r).address) - shared;
    }
    statistics.ldmatrix_conflicts += extra_wavefronts(offsets, 8);
    for (int lane = 0; lane < 32; lane++) {
      int g = lane / 4, t = lane % 4;
      uint16_t lo = transposed ? load(lanes, m * 8 + 2 * t).row[g] : load(lanes, m * 8 + g).row[2 * t];
      uint16_t hi = transposed ? load(lanes, m * 8 + 2 * t + 1).row[g] : load(lanes, m * 8 + g).row[2 * t + 1];
      load(lanes, lane).result[m] = lo | static_cast<unsigned>(hi) << 16;
    }
  }
}
void operation_ldmatrix(void* const* lanes, unsigned) { ldmatrix_x4(lanes, false); }
void operation_ldmatrix_trans(void* const* lanes, unsigned) { ldmatrix_x4(lanes, true); }

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

static float f16_value(unsigned u) { return __half2float(__ushort_as_half((unsigned short)u)); }
static float bf16_value(unsigned u) { return __bfloat162float(__ushort_as_bfloat16((unsigned short)u)); }

template <float VALUE(unsigned)>
static void mma_m16n8k16(void* const* lanes) {
  Product<16> p;
  for (int lane = 0; lane < 32; lane++) {
    const Mma& m = *static_cast<Mma*>(lanes[lane]);
    int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; r++) {
      int row = g + (r & 1) * 8, k = 2 * t + (r >> 1) * 8;
      p.A[row][k] = VALUE(m.a[r] & 0xffff);
      p.A[row][k + 1] = VALUE(m.a[r] >> 16);
    }
    for (int r = 0; r < 2; r++) {
      int k = 2 * t + r * 8;
      p.B[k][g] = VALUE(m.b[r] & 0xffff);
      p.B[k + 1][g] = VALUE(m.b[r] >> 16);
    }
  }
  p.run(lanes);
}
void operation_mma_f16(void* const* lanes, unsigned) { mma_m16n8k16<f16_value>(lanes); }
void operation_mma_bf16(void* const* lanes, unsigned) { mma_m16n8k16<bf16_value>(lanes); }

void operation_mma_tf32(void* const* lanes, unsigned) {
  // the hardware reads the upper 19 bits only: a missing to_tf32 truncates instead of rounding
  auto value = [](unsigned u) { return bits_as<float>(u & 0xffffe000u); };
  Product<8> p;
  for (int lane = 0; lane < 32; lane++) {
    const Mma& m = *static_cast<Mma*>(lanes[lane]);
    int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; r++) p.A[g + (r & 1) * 8][t + (r >> 1) * 4] = value(m.a[r]);
    for (int r = 0; r < 2; r++) p.B[t + r * 4][g] = value(m.b[r]);
  }
  p.run(lanes);
}

}  // namespace emu
