package dev.loupe.ops.cuda;

import dev.loupe.Gemm;
import dev.loupe.Precision;

/** Opens the emulated GPU with decoding steps replayed as graphs, or launched one by one. */
public final class Graphs {
  private Graphs() {}

  public static CudaOps ops(Precision precision, boolean graphs) {
    return new CudaOps(0, precision, Gemm.OWN, graphs);
  }

  /** What the memory plan leaves free on such a card. */
  public static long margin(long cardBytes) {
    return CudaMemory.margin(cardBytes);
  }
}
