package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Layer normalisation of rows (Ba, Kiros and Hinton, arXiv 1607.06450): (x - mean) / sqrt(variance
 * + eps) * gamma + beta, with the population's variance.
 *
 * <p>Not for two threads at once.
 */
public final class LayerNormKernels {
  private static final Set<Element> ELEMENTS = Set.of(Element.F32, Element.F16, Element.BF16);

  /** Rows of this family in the {@link KernelCatalogue}. */
  public static final List<Variant> VARIANTS =
      List.of(
          new Variant("layernorm", "v1", "one thread a row", "", ELEMENTS, 75),
          new Variant("layernorm", "v2", "one block a row, coalesced loads", "", ELEMENTS, 75),
          new Variant(
              "layernorm",
              "v3",
              "one warp a row, read once, 16 bytes a load, no barriers",
              "width a multiple of 8; one row fits shared memory",
              ELEMENTS,
              75));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();
  private static final List<Variant> OF_ANY_WIDTH = VARIANTS.subList(0, 2).reversed();

  private final Gpu gpu;
  private final int threads;
  private final Map<String, Launch> launches = new HashMap<>();

  /** On {@code gpu}; each kernel is loaded when it is first needed. */
  public LayerNormKernels(Gpu gpu) {
    this(gpu, 0);
  }

  /**
   * Likewise, to see what the size of a block is worth.
   *
   * @param threads of each block, a multiple of 32; 0 for those that each variant chooses
   */
  public LayerNormKernels(Gpu gpu, int threads) {
    this.gpu = gpu;
    this.threads = threads;
  }

  /** Normalises by the variant that the GPU chooses: by design v3 where it can, else v2. */
  public void normalize(
      DeviceBuffer x,
      DeviceBuffer gamma,
      DeviceBuffer beta,
      DeviceBuffer y,
      int rows,
      int width,
      float eps) {
    List<Variant> candidates =
        reason(VARIANTS.getLast(), width).isEmpty() ? BEST_FIRST : OF_ANY_WIDTH;
    Variant variant = gpu.choose(candidates, x.element(), rows);
    normalize(variant, x, gamma, beta, y, rows, width, eps);
  }

  /**
   * Normalises each of {@code rows} rows.
   *
   * @param variant one of the family's
   * @param x [rows, width] F32, F16 or BF16
   * @param gamma [width] F32
   * @param beta [width] F32
   * @param y [rows, width] of x's element, or any where x is F32; may be x
   * @param eps added to the variance, more than 0
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element, or
   *     the variant doesn't take the width
   */
  public void normalize(
      Variant variant,
      DeviceBuffer x,
      DeviceBuffer gamma,
      DeviceBuffer beta,
      DeviceBuffer y,
      int rows,
      int width,
      float eps) {
    BufferCheck check = new BufferCheck("layernorm " + variant.name(), gpu);
    check.size("rows", rows, 1, Integer.MAX_VALUE);
    check.size("width", width, 1, 1 << 20);
    check.holds("x", x, (long) rows * width);
    check.holds("gamma", gamma, Element.F32, width);
    check.holds("beta", beta, Element.F32, width);
    check.holds("y", y, (long) rows * width);
    String problem = reason(variant, width);
    if (!(eps > 0)) {
      problem = "eps is %s, not more than 0".formatted(eps);
    } else if (!ELEMENTS.contains(x.element())
        || !ELEMENTS.contains(y.element())
        || (x.element() != Element.F32 && x.element() != y.element())) {
      problem = "no kernel from %s to %s".formatted(x.element(), y.element());
    }
    if (!problem.isEmpty()) {
      throw new IllegalArgumentException("%s: %s".formatted(check.operation(), problem));
    }
    String name = variant.kernel(x.element());
    Launch launch =
        launches
            .computeIfAbsent(
                x.element() == y.element() ? name : name + "_" + y.element().suffix(), this::launch)
            .set(0, x)
            .set(1, gamma)
            .set(2, beta)
            .set(3, y)
            .set(4, rows)
            .set(5, width)
            .set(6, eps);
    run(variant, launch, rows, width);
  }

  private void run(Variant variant, Launch launch, int rows, int width) {
    switch (variant.name()) {
      case "v1" -> {
        int n = threads == 0 ? 128 : threads;
        launch.run(Math.ceilDiv(rows, n), 1, 1, n, 1, 0);
      }
      case "v2" -> {
        int n = threads == 0 ? 256 : threads;
        launch.run(rows, 1, 1, n, 1, n / 32 * Float.BYTES);
      }
      default -> {
        int warps = threads == 0 ? warps(rows, width) : threads / 32;
        launch.run(Math.ceilDiv(rows, warps), 1, 1, 32 * warps, 1, warps * width * Float.BYTES);
      }
    }
  }

  /** Of v3, each with a row. */
  private int warps(int rows, int width) {
    // few rows: one warp a block, so that all multiprocessors take part
    int warps = rows < 4 * gpu.multiprocessors() ? 1 : 4;
    while (warps > 1 && warps * width > gpu.maxSharedBytes() / Float.BYTES) {
      warps /= 2;
    }
    return warps;
  }

  /** Why a variant does not take rows of {@code width} on this card; empty if it does. */
  public String reason(Variant variant, int width) {
    if (!VARIANTS.contains(variant)) {
      return "not a variant of layernorm";
    }
    if (!variant.name().equals("v3")) {
      return "";
    }
    if (width % 8 != 0) {
      return "width is %d, not a multiple of 8".formatted(width);
    }
    int most = gpu.maxSharedBytes() / Float.BYTES;
    return width <= most
        ? ""
        : "width is %d, at most %d fit this card's shared memory".formatted(width, most);
  }

  private Launch launch(String name) {
    return new Launch(
        gpu.kernel("layernorm", name), POINTER, POINTER, POINTER, POINTER, INT, INT, FLOAT);
  }
}
