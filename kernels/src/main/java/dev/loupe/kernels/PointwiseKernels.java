package dev.loupe.kernels;

import static dev.loupe.kernels.Parameter.INT;
import static dev.loupe.kernels.Parameter.LONG;
import static dev.loupe.kernels.Parameter.POINTER;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What is done to each element by itself, or to two at one place.
 *
 * <p>Not for two threads at once.
 */
public final class PointwiseKernels {
  private static final Set<Element> ELEMENTS = Set.of(Element.F32, Element.F16, Element.BF16);

  static final List<Variant> VARIANTS =
      List.of(
          new Variant("pointwise", "residual", "x += y, 16 bytes a load", "", ELEMENTS, 75),
          new Variant("pointwise", "activate", "y = f(x), 16 bytes a load", "", ELEMENTS, 75),
          new Variant("pointwise", "convert", "y = x, 16 bytes a load", "", ELEMENTS, 75));

  private static final int THREADS = 256;
  private static final int PER_THREAD = 8;
  private static final long MOST = (long) Integer.MAX_VALUE * THREADS * PER_THREAD;

  private final Gpu gpu;
  private final int threads;
  private final Map<String, Launch> launches = new HashMap<>();

  /** On {@code gpu}; each kernel is loaded when it is first needed. */
  public PointwiseKernels(Gpu gpu) {
    this(gpu, THREADS);
  }

  /**
   * Likewise, to see what the size of a block is worth.
   *
   * @param threads of each block, 32 or more
   */
  public PointwiseKernels(Gpu gpu, int threads) {
    this.gpu = gpu;
    this.threads = threads;
  }

  /**
   * x += y.
   *
   * @param x [n] F32, F16 or BF16; written
   * @param y [n] of x's element, or any where x is F32; not x
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void addResidual(DeviceBuffer x, DeviceBuffer y, long n) {
    check("residual", x, y, n);
    if (x.element() != Element.F32 && x.element() != y.element()) {
      throw new IllegalArgumentException(
          "residual: no kernel from %s to %s".formatted(y.element(), x.element()));
    }
    if (x.address() == y.address()) {
      throw new IllegalArgumentException("residual: x and y are one buffer");
    }
    String name = VARIANTS.get(0).kernel(x.element());
    run(
        launches
            .computeIfAbsent(
                x.element() == y.element() ? name : name + "_" + y.element().suffix(),
                k -> new Launch(gpu.kernel("pointwise", k), POINTER, POINTER, LONG))
            .set(0, x)
            .set(1, y)
            .set(2, n),
        n);
  }

  /**
   * y = activation(x).
   *
   * @param x [n] F32, F16 or BF16
   * @param y [n] of x's element; may be x
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void activate(Activation activation, DeviceBuffer x, DeviceBuffer y, long n) {
    check("activation", x, y, n);
    if (x.element() != y.element()) {
      throw new IllegalArgumentException(
          "activation: no kernel from %s to %s".formatted(x.element(), y.element()));
    }
    run(
        launches
            .computeIfAbsent(
                VARIANTS.get(1).kernel(x.element()),
                k -> new Launch(gpu.kernel("pointwise", k), POINTER, POINTER, LONG, INT))
            .set(0, x)
            .set(1, y)
            .set(2, n)
            .set(3, activation.code()),
        n);
  }

  /**
   * y = x in y's element, rounded to nearest, ties to even; what F16 can't hold becomes infinite.
   *
   * @param x [n] F32, F16 or BF16
   * @param y [n] F32, F16 or BF16; not x
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void convert(DeviceBuffer x, DeviceBuffer y, long n) {
    check("conversion", x, y, n);
    if (x.address() == y.address()) {
      throw new IllegalArgumentException("conversion: x and y are one buffer");
    }
    run(
        launches
            .computeIfAbsent(
                VARIANTS.get(2).kernel(x.element()),
                k -> new Launch(gpu.kernel("pointwise", k), POINTER, POINTER, LONG, INT))
            .set(0, x)
            .set(1, y)
            .set(2, n)
            .set(3, code(y.element())),
        n);
  }

  /** Number of an element that pointwise_convert writes. */
  private static int code(Element to) {
    return switch (to) {
      case F32 -> 0;
      case F16 -> 1;
      case BF16 -> 2;
      case I8, I32 -> throw new IllegalArgumentException("conversion: no kernel to " + to);
    };
  }

  private void check(String operation, DeviceBuffer x, DeviceBuffer y, long n) {
    BufferCheck check = new BufferCheck(operation, gpu);
    check.size("n", n, 1, MOST);
    check.holds("x", x, n);
    check.holds("y", y, n);
    if (!ELEMENTS.contains(x.element()) || !ELEMENTS.contains(y.element())) {
      throw new IllegalArgumentException(
          "%s: no kernel for %s and %s".formatted(operation, x.element(), y.element()));
    }
  }

  private void run(Launch launch, long n) {
    long blocks = Math.ceilDiv(n, (long) threads * PER_THREAD);
    launch.run(Math.toIntExact(blocks), 1, 1, threads, 1, 0);
  }
}
