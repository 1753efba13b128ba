package dev.loupe.ops.cuda;

import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Precision;

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

  /** Likewise with graphs, the kernels being those that {@code choice} takes. */
  public static CudaOps ops(Precision precision, KernelChoice choice) {
    CudaOps ops = ops(precision, true);
    use(ops, choice);
    return ops;
  }

  /** Lets {@code choice} decide in the sessions to come. */
  public static void use(Ops ops, KernelChoice choice) {
    ((CudaOps) ops).gpu().use(choice);
  }
}
