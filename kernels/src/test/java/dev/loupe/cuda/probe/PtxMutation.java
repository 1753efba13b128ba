package dev.loupe.cuda.probe;

import java.util.List;

/**
 * A mistake in the half of gpu.cuh that nvcc compiles.
 *
 * @param probe that has to see it
 * @param target for which the line is compiled
 * @param function where it is
 * @param from text in it, of which the first is replaced
 */
record PtxMutation(Probe probe, String target, String function, String from, String to) {
  private static final String A80 = "compute_80";
  private static final String A75 = "compute_75";

  /** The first of each probe and target go together into one header. */
  static final List<PtxMutation> ALL =
      List.of(
          swap(Probe.MMA_F16, A80, "mma_m16n8k16_f16(", "\"r\"(b0), \"r\"(b1)"),
          swap(Probe.MMA_F16, A80, "mma_m16n8k16_f16(", "\"r\"(a[1]), \"r\"(a[2])"),
          swap(Probe.MMA_F16, A80, "mma_m16n8k16_f16(", "\"+f\"(d[1]), \"+f\"(d[2])"),
          swap(Probe.MMA_F16, A75, "m16n8k8.row.col.f32.f16", "\"r\"(a[0]), \"r\"(a[1])"),
          new PtxMutation(Probe.MMA_F16, A75, "m16n8k8.row.col.f32.f16", "\"r\"(b1)", "\"r\"(b0)"),
          swap(Probe.MMA_BF16, A80, "mma_m16n8k16_bf16(", "\"r\"(b0), \"r\"(b1)"),
          swap(Probe.MMA_BF16, A80, "mma_m16n8k16_bf16(", "\"r\"(a[1]), \"r\"(a[2])"),
          new PtxMutation(Probe.MMA_BF16, A80, "mma_m16n8k16_bf16(", ".bf16.bf16.", ".f16.f16."),
          swap(Probe.MMA_TF32, A80, "mma_m16n8k8_tf32(", "\"r\"(b0), \"r\"(b1)"),
          swap(Probe.MMA_TF32, A80, "mma_m16n8k8_tf32(", "\"r\"(a[2]), \"r\"(a[3])"),
          swap(Probe.LDMATRIX, A80, "ldmatrix_x4(", "%0,%1"),
          new PtxMutation(Probe.LDMATRIX, A80, "ldmatrix_x4(", ".x4.", ".x4.trans."),
          new PtxMutation(Probe.LDMATRIX_TRANS, A80, "ldmatrix_x4_trans(", ".trans.", "."),
          swap(Probe.LDMATRIX_TRANS, A80, "ldmatrix_x4_trans(", "%2,%3"),
          new PtxMutation(Probe.CP_ASYNC, A80, "cp_async16(", "? 16 : 0", "? 8 : 0"),
          new PtxMutation(Probe.CP_ASYNC, A80, "cp_async16(", "16, %2", "8, %2"),
          new PtxMutation(Probe.CP_ASYNC, A80, "cp_async16(", "valid ?", "!valid ?"),
          new PtxMutation(Probe.CP_ASYNC, A80, "cp_async_wait(", "\"n\"(PENDING)", "\"n\"(9)"),
          new PtxMutation(
              Probe.CP_ASYNC, A80, "cp_async_commit(", "cp.async.commit_group;", "// nothing"),
          new PtxMutation(Probe.TF32, A80, "to_tf32(", "cvt.rna.tf32.f32", "mov.b32"),
          new PtxMutation(Probe.EXP2, A80, "exp2_approx(", "\"f\"(x)", "\"f\"(-x)"),
          new PtxMutation(Probe.EXP2, A80, "exp2_approx(", "ex2.", "lg2."),
          new PtxMutation(Probe.PACK, A80, "pack_f16x2(", "rn(lo, hi)", "rn(hi, lo)"),
          new PtxMutation(Probe.PACK, A80, "pack_bf16x2(", "rn(lo, hi)", "rn(hi, lo)"),
          new PtxMutation(
              Probe.SHARED128,
              A80,
              "lds128_f32(",
              "*static_cast<const float4*>(shared)",
              "static_cast<const float4*>(shared)[-1]"),
          new PtxMutation(Probe.NAMED_BARRIER, A80, "named_barrier(", "%0, %1", "%0, 32"),
          swap(Probe.NAMED_BARRIER, A80, "named_barrier(", "%0, %1"),
          new PtxMutation(Probe.GRID_SYNC, A80, "grid_sync(", "this_grid().sync()", "this_grid()"));

  /** Two things with a comma between them change places. */
  private static PtxMutation swap(
      Probe probe, String target, String function, String firstAndSecond) {
    int comma = firstAndSecond.indexOf(',');
    String space = firstAndSecond.charAt(comma + 1) == ' ' ? ", " : ",";
    String second = firstAndSecond.substring(comma + space.length());
    String first = firstAndSecond.substring(0, comma);
    return new PtxMutation(probe, target, function, firstAndSecond, second + space + first);
  }

  /** The header with this mistake. */
  String in(String header) {
    int begin = header.indexOf(function);
    int at = begin < 0 ? -1 : header.indexOf(from, begin);
    if (at < 0) {
      throw new IllegalStateException("gpu.cuh has no %s behind %s".formatted(from, function));
    }
    return header.substring(0, at) + to + header.substring(at + from.length());
  }
}
