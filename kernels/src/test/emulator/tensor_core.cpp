// ldmatrix and mma.sync: what the last arriving lane does for its warp, with the fragment layouts of the PTX ISA
// (drawn in gpu.cuh). Accumulation is in f32 in order of k, and every sum is cut off, towards zero: a real tensor core
// cuts off, too, though once for some products together (Fasi et al., PeerJ Computer Science 7:e330).
#include "tensor_core.h"

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

static void mma_m16n8k16(void* const* lanes, bool bf16) {
  Product<16> p;
  fragments_of_a(lanes, bf16, p);
  for (int lane = 0; lane < 32; lane++) {
    const Mma& m = *static_cast<Mma*>(lanes[lane]);
    int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 2; r++) {
      int k = 2 * t + r * 8;
      p.B[k][g] = bf16 ? bf16_value(m.b[r] & 0xffff) : f16_value(m.b[r] & 0xffff);
      p.B[k + 1][g] = bf16 ? bf16_value(m.b[r] >> 16) : f16_value(m.b[r] >> 16);
    }
  }
  p.run(lanes);
}
void operation_mma_f16(void* const* lanes, unsigned) { mma_m16n8k16(lanes, false); }
void operation_mma_bf16(void* const* lanes, unsigned) { mma_m16n8k16(lanes, true); }

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
