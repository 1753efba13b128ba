package dev.loupe.kernels;

import java.util.List;
import java.util.Set;

/**
 * Linear maps by cuBLAS: its product in f32, then one kernel for the epilogue. For maps of many
 * rows. Not for two threads at once.
 */
public final class CublasLinear implements AutoCloseable {
  private static final String FAMILY = "epilogue";
  private static final int THREADS = 256;

  static final List<Variant> VARIANTS =
      List.of(
          new Variant(
              FAMILY,
              "v1",
              "what follows a product that cuBLAS made, 16 bytes a load",
              "",
              Set.of(Element.F32),
              75));

  private final Gpu gpu;
  private final Cublas cublas;
  private final Scratch sums; // [R, outputs]

  /**
   * @param cublas closed with this
   */
  public CublasLinear(Gpu gpu, Cublas cublas) {
    this.gpu = gpu;
    this.cublas = cublas;
    this.sums = new Scratch(gpu, Element.F32);
  }

  /** True if cuBLAS multiplies such elements: those of x and W are one, f32, f16 or bf16. */
  public static boolean takes(LinearMap map, DeviceBuffer x) {
    return map.weight().element() == x.element() && x.element().isFloat();
  }

  /**
   * Prepares a call.
   *
   * @param x [R, in] of the element of W
   * @throws IllegalArgumentException if a buffer is too small, closed, of another element, on
   *     another GPU or overlaps another
   */
  public LinearCall prepare(LinearMap map, DeviceBuffer x, LinearEpilogue epilogue) {
    BufferCheck check = new BufferCheck("linear by cuBLAS", gpu);
    if (!takes(map, x)) {
      throw new IllegalArgumentException(
          "%s: no product of x in %s and W in %s"
              .formatted(check.operation(), x.element(), map.weight().element()));
    }
    LinearArguments arguments = new LinearArguments(check, map, x, epilogue);
    Launch launch =
        arguments.bindEpilogue(
            gpu.kernel(FAMILY, VARIANTS.getFirst().kernel(Element.F32) + arguments.ending()));
    long quads = Math.ceilDiv(map.outputs(), 4);
    int maxRows = arguments.maxRows(Integer.MAX_VALUE / quads);
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      DeviceBuffer product = sums.atLeast((long) rows * map.outputs());
      cublas.linear(x, map.weight(), product, rows, map.in(), map.outputs(), false);
      launch
          .set(0, product)
          .set(3, rows)
          .run((int) Math.ceilDiv(rows * quads, (long) THREADS), 1, 1, THREADS, 1, 0);
    };
  }

  /** Frees the memory of products, which a later call takes anew. */
  public void freeProducts() {
    sums.close();
  }

  /** Frees the memory of products and closes cuBLAS. */
  @Override
  public void close() {
    freeProducts();
    cublas.close();
  }
}
