package dev.loupe.cuda.kernels;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Set;

/**
 * Linear maps of any number of rows: out = x . W^T + b with x [R, in], W [outputs, in], b
 * [outputs], sums in f32. Kernels and their reasons are in linear.cu.
 */
public final class LinearKernels {
  private static final String FAMILY = "linear";
  private static final Set<Element> ELEMENTS = Set.of(Element.F32, Element.F16, Element.BF16);

  /** Rows of this family in the {@link KernelCatalogue}. */
  public static final List<Variant> VARIANTS =
      List.of(
          new Variant(FAMILY, "v1", "one thread an output", "", ELEMENTS, 75),
          new Variant(
              FAMILY,
              "v2",
              "tiles in shared memory: x and W are read once for 16 outputs",
              "",
              ELEMENTS,
              75),
          new Variant(
              FAMILY, "v3", "larger tiles, 8 x 4 outputs a thread in registers", "", ELEMENTS, 75),
          new Variant(
              FAMILY,
              "v4",
              "tensor cores in place of float units, cp.async, swizzled shared memory; f32 as 3xTF32",
              "rows of W are multiples of 16 bytes",
              ELEMENTS,
              80));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();
  private static final List<Variant> WITHOUT_TENSOR_CORES = VARIANTS.subList(0, 3).reversed();

  /** Version, rows and columns of a block's tile, its threads, its shared memory in bytes. */
  private record Tile(int rows, int cols, int threadsX, int threadsY, int sharedBytes) {
    static Tile of(Variant variant) {
      return switch (variant.name()) {
        case "v1" -> new Tile(8, 32, 32, 8, 0);
        case "v2" -> new Tile(16, 16, 16, 16, 2 * 16 * 33 * Float.BYTES);
        // the sums' tile [128, 72], which is larger than the operands'
        case "v3" -> new Tile(128, 64, 256, 1, 128 * 72 * Float.BYTES);
        default -> new Tile(128, 64, 128, 1, 2 * (128 + 64) * 128);
      };
    }
  }

  private static final int MAX_GRID_Y = 65_535;

  private final Gpu gpu;

  /** On {@code gpu}; each kernel is loaded when it is first needed. */
  public LinearKernels(Gpu gpu) {
    this.gpu = gpu;
  }

  /**
   * The variant for a call: by design v4 where card and shape allow, else v3.
   *
   * @throws GpuException if none computes rightly on this card
   */
  public Variant variantFor(LinearMap map, int rows) {
    Element element = map.weight().element();
    boolean fits = reason(VARIANTS.getLast(), element, map.in()).isEmpty();
    return gpu.choose(fits ? BEST_FIRST : WITHOUT_TENSOR_CORES, element, rows);
  }

  /** Why a variant does not take a W of {@code in} columns on this card; empty if it does. */
  public String reason(Variant variant, Element element, int in) {
    if (!variant.elements().contains(element)) {
      return "no kernel for W in " + element;
    }
    if (!variant.runsOn(gpu.computeCapability())) {
      return "needs compute capability %s, this card has %s; use v3"
          .formatted(variant.computeCapabilities(), dotted(gpu.computeCapability()));
    }
    return variant.name().equals("v4") && !LinearMap.rowsAre16Bytes(element, in)
        ? "in is %d, not a multiple of %d, so rows of W are not multiples of 16 bytes; use v3"
            .formatted(in, 16 / element.bytes())
        : "";
  }

  /**
   * Prepares a call.
   *
   * @param variant one of the family's
   * @param x [R, in] F32, or the element of W; v4 rounds F32 to that of W
   * @throws IllegalArgumentException if a buffer is too small, closed, of another element, on
   *     another GPU or overlaps another, or the variant does not take the shape or runs on newer
   *     cards only
   */
  public LinearCall prepare(
      Variant variant, LinearMap map, DeviceBuffer x, LinearEpilogue epilogue) {
    BufferCheck check = new BufferCheck("linear " + variant.name(), gpu);
    Element element = map.weight().element();
    if (!VARIANTS.contains(variant)) {
      throw new IllegalArgumentException(
          "linear: %s %s is not a variant of linear".formatted(variant.family(), variant.name()));
    }
    String reason = reason(variant, element, map.in());
    if (!reason.isEmpty()) {
      throw new IllegalArgumentException("%s: %s".formatted(check.operation(), reason));
    }
    LinearArguments arguments = new LinearArguments(check, map, x, epilogue);
    String wide = x.element() == element ? "" : "_x32";
    Launch launch =
        arguments.bind(gpu.kernel(FAMILY, variant.kernel(element) + wide + arguments.ending()));
    Tile tile = Tile.of(variant);
    int columns = Math.ceilDiv(map.outputs(), tile.cols());
    int maxRows = arguments.maxRows((long) MAX_GRID_Y * tile.rows());
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      launch
          .set(LinearArguments.rowsAt(0), rows)
          .run(
              columns,
              Math.ceilDiv(rows, tile.rows()),
              1,
              tile.threadsX(),
              tile.threadsY(),
              tile.sharedBytes());
    };
  }

  private static String dotted(int computeCapability) {
    return computeCapability / 10 + "." + computeCapability % 10;
  }
}
