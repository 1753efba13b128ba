// Tests of the emulator itself: planted bugs must be reported, with file and line, and right kernels must be right.
// Cases that start with bug_ must fail; check.sh sees to that.
#include <cmath>

#include "harness.h"

using namespace harness;

static const std::string HERE = "planted.cu:";

CASE(self_barriers) {
  Buffer<float> y(64);
  launch("planted_no_barrier", {1}, {64}, 256, y, 0);
  launch("planted_divergent_barrier", {1}, {64}, 0, y, 0);
  expect_failure([&] { launch("planted_divergent_barrier", {1}, {64}, 0, y, 1); },
                 {"divergent barrier", HERE, "planted_divergent_barrier"});
  launch("planted_deadlock", {1}, {64}, 0, y, 0);
  expect_failure([&] { launch("planted_deadlock", {1}, {64}, 0, y, 1); },
                 {"deadlock", "32 threads wait in named_barrier at", "32 threads wait in __syncthreads at", "(32-63)"});
  expect_failure([&] { launch("planted_deadlock", {1}, {48}, 0, y, 1); }, {"deadlock"});
  Buffer<int> out(3 * 96);
  launch("planted_counts", {1}, {96}, 0, out);
  std::vector<int> counts = out.download();
  for (int i = 0; i < 96; i++) {
    expect_equal("count", counts[i * 3], 24);
    expect_equal("or", counts[i * 3 + 1], 1);
    expect_equal("and", counts[i * 3 + 2], 0);
  }
}

CASE(self_warps) {
  Buffer<float> y(64);
  launch("planted_missing_lane", {1}, {64}, 0, y, 0);
  expect_failure([&] { launch("planted_missing_lane", {1}, {64}, 0, y, 1); },
                 {"__shfl_xor_sync", HERE, "waits for lane", "has exited or does not exist"});
  expect_failure([&] { launch("planted_missing_lane", {1}, {48}, 0, y, 0); }, {"lane 16", "does not exist"});
  launch("planted_divergent_warp", {1}, {64}, 0, y, 0);
  expect_failure([&] { launch("planted_divergent_warp", {1}, {64}, 0, y, 1); },
                 {"divergent warp: __shfl_xor_sync", " meets __shfl_xor_sync"});
  Buffer<int> out(12 * 32);
  launch("planted_warp", {1}, {32}, 0, out);
  std::vector<int> o = out.download();
  for (int lane = 0; lane < 32; lane++) {
    int group = lane & ~7, in = lane & 7, ballot = 0;
    for (int i = 0; i < 32; i += 3) ballot |= 1 << i;
    int expected[] = {5,
                      group + 1,
                      lane >= 3 ? lane - 3 : lane,
                      in >= 3 ? lane - 3 : lane,
                      lane + 3 < 32 ? lane + 3 : lane,
                      in + 3 < 8 ? lane + 3 : lane,
                      lane ^ 6,
                      (lane ^ 6) <= (lane | 3) ? lane ^ 6 : lane,
                      ballot,
                      3,
                      0};
    for (int row = 0; row < 11; row++) {
      expect_equal(("warp row " + std::to_string(row)).c_str(), o[row * 32 + lane], expected[row]);
    }
    if (lane < 16) expect_equal("half warp", o[11 * 32 + lane], lane ^ 1);
  }
}

CASE(self_spin) {
  Buffer<unsigned> y(32);
  expect_failure([&] { launch("planted_spin", {1}, {32}, 0, y, 1); }, {"spin for ever", HERE});
}

#ifdef EMU_ASAN
const bool FAULTS = false;  // there the process ends with AddressSanitizer's report
#else
const bool FAULTS = true;
#endif

CASE(self_shared_bounds) {
  Buffer<float> y(64);
  for (int how = 0; how < 5; how++) {
    if (how == 3) continue;
    launch("planted_shared_access", {1}, {32}, 256, y, 240, how);
    for (int offset : {-16, 248, 256, 1 << 16}) {
      expect_failure([&] { launch("planted_shared_access", {1}, {32}, 256, y, offset, how); },
                     {"shared memory address out of range", "of", HERE, std::to_string(offset)});
    }
    expect_failure([&] { launch("planted_shared_access", {1}, {32}, 256, y, 8, how); }, {"not a multiple of 16"});
  }
  if (!FAULTS) return;
#ifndef EMU_TSAN
  launch("planted_shared_access", {1}, {32}, 252, y, 248, 3);
  expect_failure([&] { launch("planted_shared_access", {1}, {32}, 252, y, 252, 3); }, {"wrote behind its 252 bytes"});
  expect_failure([&] { launch("planted_shared_access", {1}, {32}, 252, y, 256, 3); },
                 {"illegal access", "offset 256 of 252 bytes of shared memory"});
#endif
}

CASE(self_global_bounds) {
#if !defined(EMU_ASAN) && !defined(EMU_TSAN)
  Buffer<float> y(61), freed_later(8);  // 244 bytes: 12 more until the guard page
  launch("planted_global_access", {1}, {1}, 0, y, CUdeviceptr(60), 1);
  expect_failure([&] { launch("planted_global_access", {1}, {1}, 0, y, CUdeviceptr(64), 0); },
                 {"illegal access: byte 256 of an allocation of 244 bytes", "planted_global_access"});
  expect_failure([&] { launch("planted_global_access", {1}, {1}, 0, y, CUdeviceptr(-1024), 1); }, {"illegal access"});
  expect_failure([&] { launch("planted_global_access", {1}, {1}, 0, y, CUdeviceptr(61), 1); },
                 {"wrote 0 bytes behind an allocation of 244 bytes"});
  y.upload(std::vector<float>(61));
  CUdeviceptr gone;
  {
    Buffer<float> z(100);
    gone = z.address;
  }
  expect_failure([&] { launch("planted_global_access", {1}, {1}, 0, gone, CUdeviceptr(5), 1); },
                 {"byte 20 of an allocation of 400 bytes that has been freed"});
#endif
}

CASE(self_tensor_cores) {
  for (int type = 0; type < 3; type++) {
    int K = type == 2 ? 8 : 16;
    // integers up to 8 are exact in every type, so the result is exact whatever the order of the sums
    std::vector<float> A(16 * K), B(K * 8), C(16 * 8);
    for (auto* m : {&A, &B, &C}) {
      *m = random.normal(m->size(), 3.0f);
      for (float& x : *m) x = std::fmax(-8.0f, std::fmin(8.0f, std::round(x)));
    }
    std::vector<double> expected(C.begin(), C.end());
    for (int i = 0; i < 16; i++) {
      for (int j = 0; j < 8; j++) {
        for (int k = 0; k < K; k++) expected[i * 8 + j] += A[i * K + k] * B[k * 8 + j];
      }
    }
    Buffer<float> a(A), b(B), d(C);
    launch("planted_mma", {1}, {32}, 1024, a, b, d, type);
    expect_near("D", d.download(), expected, 0);
  }
}

CASE(self_types) {
  // every half and bfloat16 converts to float and back
  for (unsigned u = 0; u < 65536; u++) {
    __half h = __ushort_as_half((unsigned short)u);
    __nv_bfloat16 b = __ushort_as_bfloat16((unsigned short)u);
    float fh = __half2float(h), fb = __bfloat162float(b);
    if (!std::isnan(fh)) expect_equal("half", __half_as_ushort(__float2half_rn(fh)), u);
    if (!std::isnan(fb)) expect_equal("bfloat16", __bfloat16_as_ushort(__float2bfloat16_rn(fb)), u);
  }
  expect_equal("half of a tie", __half_as_ushort(__float2half_rn(2049.0f)), 0x6800);   // 2048, the even one
  expect_equal("half too large", __half_as_ushort(__float2half_rn(65520.0f)), 0x7c00);  // infinity
  expect_equal("bfloat16 of a tie", __bfloat16_as_ushort(__float2bfloat16_rn(257.0f)), 0x4380);
  expect_equal("bfloat16 of a tie", __bfloat16_as_ushort(__float2bfloat16_rn(259.0f)), 0x4382);
  expect_equal("bfloat16 of NaN", std::isnan(__bfloat162float(__float2bfloat16_rn(NAN))), 1);
}

CASE(self_conflicts) {
  Buffer<float> y(32);
  struct { int stride, extra; } cases[] = {{16, 0}, {32, 4}, {128, 28}, {144, 0}, {0, 0}};
  for (auto& c : cases) {
    unsigned long long before[8], after[8];
    emu_stats(before);
    launch("planted_conflicts", {1}, {32}, 32 * 144, y, c.stride);
    emu_stats(after);
    expect_equal(("conflicts at stride " + std::to_string(c.stride)).c_str(), after[5] - before[5], c.extra);
  }
}

CASE(self_grid) {
  Buffer<int> values(8), sums(8), sum(1);
  launch_cooperative("planted_grid", {8}, {64}, 0, values, sums);
  for (int s : sums.download()) expect_equal("sum", s, 36);
  expect_failure([&] { launch("planted_grid", {8}, {64}, 0, values, sums); }, {"not a cooperative launch"});
  expect_failure([&] { launch_cooperative("planted_grid", {1000}, {64}, 0, values, sums); }, {"too many blocks"});
  Buffer<unsigned> arrived(std::vector<unsigned>{0});
  launch("planted_last_block", {8}, {64}, 0, values, arrived, sum);
  expect_equal("sum", sum.download()[0], 36);
}

CASE(self_refused) {
  Buffer<float> y(64);
  expect_failure([&] { launch("planted_no_such", {1}, {32}, 0, y, 0); }, {"named symbol not found"});
  expect_failure([&] { launch("planted_no_barrier", {1}, {1025}, 0, y, 0); }, {"invalid argument"});
  expect_failure([&] { launch("planted_no_barrier", {1, 65536}, {32}, 0, y, 0); }, {"invalid argument"});
  expect_failure([&] { launch("planted_no_barrier", {1}, {32}, 240 * 1024, y, 0); }, {"invalid argument"});
  std::vector<float> host(65);
  expect_equal("copy that is too long", cuMemcpyHtoD_v2(y.address, host.data(), 65 * 4), 1);
  expect_equal("copy that is too long", cuMemcpyDtoH_v2(host.data(), y.address + 4, 64 * 4), 1);
}

// Wrong results in some schedules; TSan must report the missing barriers in all of them.

CASE(bug_first_barrier) {
  Buffer<float> y(64);
  launch("planted_no_barrier", {1}, {64}, 256, y, 1);
  std::vector<double> expected(64);
  for (int i = 0; i < 64; i++) expected[i] = (i + 1) % 64;
  expect_near("y", y.download(), expected, 0);
}
CASE(bug_second_barrier) {
  Buffer<float> y(64);
  launch("planted_no_second_barrier", {1}, {64}, 256, y, 1);
  std::vector<double> expected(64);
  for (int i = 0; i < 64; i++) expected[i] = 2 * ((i + 1) % 64) + 1000;
  expect_near("y", y.download(), expected, 0);
}
CASE(bug_wait_group) {
  std::vector<float> values = random.normal(64 * 8);
  Buffer<float> x(values), y(64 * 8);
  launch("planted_wait", {1}, {64}, 64 * 32, x, y, 1);
  expect_near("y", y.download(), std::vector<double>(values.begin(), values.end()), 0);
}
CASE(bug_block_race) {
  Buffer<float> y(8);
  launch("planted_block_race", {8}, {32}, 0, y, 1);
}
