package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.LONG;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
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
  private static final String FAMILY = "pointwise";
  private static final Set<Element> ELEMENTS = Set.of(Element.F32, Element.F16, Element.BF16);

  /** Ways to add a residual, the best first. */
  static final List<Variant> RESIDUAL =
      List.of(
          row("residual", "x += y, 16 bytes a load"),
          row("v0_residual", "x += y, one thread an element"));

  /** Ways to take an activation, likewise. */
  static final List<Variant> ACTIVATE =
      List.of(
          row("activate", "y = f(x), 16 bytes a load"),
          row("v0_activate", "y = f(x), one thread an element"));

  /** Ways to convert, likewise. */
  static final List<Variant> CONVERT =
      List.of(
          row("convert", "y = x, 16 bytes a load"),
          row("v0_convert", "y = x, one thread an element"));

  static final List<Variant> VARIANTS = Variant.plainestFirst(List.of(RESIDUAL, ACTIVATE, CONVERT));

  private static final int THREADS = 256;
  private static final int PER_THREAD = 8; // but of the plain ones
  private static final long MOST = (long) Integer.MAX_VALUE * THREADS;

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

  private static Variant row(String name, String idea) {
    return new Variant(FAMILY, name, idea, "", ELEMENTS, 75);
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
    Variant variant = choose(RESIDUAL, x, n);
    String name = variant.kernel(x.element());
    if (variant.isPlain()) {
      Launch launch = launch(name, POINTER, POINTER, LONG, INT, INT);
      run(variant, launch.set(3, x.element().code()).set(4, y.element().code()), x, y, n);
      return;
    }
    name = x.element() == y.element() ? name : name + "_" + y.element().suffix();
    run(variant, launch(name, POINTER, POINTER, LONG), x, y, n);
  }

  /**
   * y = activation(x).
   *
   * @param x [n] F32, F16 or BF16
   * @param y [n] of x's element; may be x
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void activate(KernelActivation activation, DeviceBuffer x, DeviceBuffer y, long n) {
    check("activation", x, y, n);
    if (x.element() != y.element()) {
      throw new IllegalArgumentException(
          "activation: no kernel from %s to %s".formatted(x.element(), y.element()));
    }
    run(choose(ACTIVATE, x, n), activation.code(), x, y, n);
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
    run(choose(CONVERT, x, n), y.element().code(), x, y, n);
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

  private Variant choose(List<Variant> candidates, DeviceBuffer x, long n) {
    return gpu.choose(candidates, x.element(), (int) Math.min(n, Integer.MAX_VALUE));
  }

  /** With a number that tells the kernel what to do; a plain one is told x's element, too. */
  private void run(Variant variant, int what, DeviceBuffer x, DeviceBuffer y, long n) {
    String name = variant.kernel(x.element());
    Launch launch =
        variant.isPlain()
            ? launch(name, POINTER, POINTER, LONG, INT, INT).set(4, x.element().code())
            : launch(name, POINTER, POINTER, LONG, INT);
    run(variant, launch.set(3, what), x, y, n);
  }

  private void run(Variant variant, Launch launch, DeviceBuffer x, DeviceBuffer y, long n) {
    long perBlock = variant.isPlain() ? threads : (long) threads * PER_THREAD;
    int blocks = Math.toIntExact(Math.ceilDiv(n, perBlock));
    launch.set(0, x).set(1, y).set(2, n).run(blocks, 1, 1, threads, 1, 0);
  }

  private Launch launch(String name, Parameter... parameters) {
    return launches.computeIfAbsent(name, k -> new Launch(gpu.kernel(FAMILY, k), parameters));
  }
}
