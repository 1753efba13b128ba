package dev.loupe.cuda.kernels;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Kernel;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/**
 * Linear maps of 1 to 8 rows, for decoding: out = x . W^T + b with x [R, in] F32, W [outputs, in]
 * in F32, F16, BF16 or I8, sums in f32. The time is that of reading W once.
 *
 * <p>The bits of a row of out depend on that row of x, W, b and the variant alone: not on R, nor on
 * the number of blocks. The kernels and their order of summation are in gemv.cu.
 */
public final class GemvKernels {
  /** Most rows of a call. */
  public static final int MAX_ROWS = 8;

  private static final String FAMILY = "gemv";

  private static final Set<Element> ELEMENTS =
      Set.of(Element.F32, Element.F16, Element.BF16, Element.I8);

  static final List<Variant> VARIANTS =
      List.of(
          new Variant(FAMILY, "v0", "one thread an output", "1 to 8 rows", ELEMENTS, 75),
          new Variant(
              FAMILY,
              "v1",
              "a warp a row of W and 512 of k, 16 bytes a load, chunks added in order",
              "1 to 8 rows; rows of W are multiples of 16 bytes",
              ELEMENTS,
              75));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();
  private static final List<Variant> PLAIN = VARIANTS.subList(0, 1);

  // as in gemv.cu
  private static final int CHUNK = 512;
  private static final int STAGE_FLOATS = 8192;
  private static final int THREADS = 256;
  private static final int BLOCKS_A_MULTIPROCESSOR = 8;

  private final Gpu gpu;

  /** On {@code gpu}; each kernel is loaded when it is first needed. */
  public GemvKernels(Gpu gpu) {
    this.gpu = gpu;
  }

  /** Why a variant does not take a W of {@code in} columns; empty if it does. */
  public static String reason(Variant variant, Element element, int in) {
    return variant.isPlain() || LinearMap.rowsAre16Bytes(element, in)
        ? ""
        : "in is %d, not a multiple of %d, so rows of W are not multiples of 16 bytes; use v0"
            .formatted(in, 16 / element.bytes());
  }

  /** The variant for a call of 1 to 8 rows; empty if none computes rightly on this card. */
  public Optional<Variant> variantFor(LinearMap map, int rows) {
    return gpu.find(map.rowsAre16Bytes() ? BEST_FIRST : PLAIN, map.weight().element(), rows);
  }

  /**
   * Prepares a call for 1 to 8 rows.
   *
   * @param variant one of the family's
   * @param x [R, in] F32
   * @throws IllegalArgumentException if a buffer is too small, closed, of another element, on
   *     another GPU or overlaps another, or the variant does not take the shape
   */
  public LinearCall prepare(
      Variant variant, LinearMap map, DeviceBuffer x, LinearEpilogue epilogue) {
    return prepare(variant, map, x, epilogue, BLOCKS_A_MULTIPROCESSOR * gpu.multiprocessors());
  }

  /** Likewise, with at most {@code mostBlocks} blocks where the variant leaves a choice. */
  public LinearCall prepare(
      Variant variant, LinearMap map, DeviceBuffer x, LinearEpilogue epilogue, int mostBlocks) {
    BufferCheck check = new BufferCheck("gemv " + variant.name(), gpu);
    if (!VARIANTS.contains(variant)) {
      throw new IllegalArgumentException(
          "gemv: %s %s is not a variant of gemv".formatted(variant.family(), variant.name()));
    }
    String reason = reason(variant, map.weight().element(), map.in());
    if (!reason.isEmpty()) {
      throw new IllegalArgumentException("%s: %s".formatted(check.operation(), reason));
    }
    check.holds("x", x, Element.F32, map.in());
    LinearArguments arguments = new LinearArguments(check, map, x, epilogue);
    int maxRows = arguments.maxRows(MAX_ROWS);
    if (variant.isPlain()) {
      return plain(variant, arguments, check, maxRows);
    }
    RowClass[] classes = new RowClass[MAX_ROWS + 1]; // of 1, 2, 4 and 8 rows
    for (int r = 1; r <= MAX_ROWS && r < 2 * maxRows; r *= 2) {
      classes[r] = rowClass(variant, arguments, r, mostBlocks);
    }
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      int r = rows == 1 ? 1 : Integer.highestOneBit(rows - 1) * 2;
      classes[r].run(rows);
    };
  }

  private LinearCall plain(
      Variant variant, LinearArguments arguments, BufferCheck check, int maxRows) {
    LinearMap map = arguments.map();
    Element element = map.weight().element();
    Kernel kernel = gpu.kernel(FAMILY, variant.kernel(element) + arguments.ending());
    Launch launch = arguments.bind(kernel, map.scales(), element.code());
    int blocks = Math.ceilDiv(map.outputs(), THREADS);
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      launch.set(LinearArguments.rowsAt(2), rows).run(blocks, rows, 1, THREADS, 1, 0);
    };
  }

  private RowClass rowClass(Variant variant, LinearArguments arguments, int r, int mostBlocks) {
    LinearMap map = arguments.map();
    String name = variant.kernel(map.weight().element());
    String ending = (r == 1 ? "" : "_r" + r) + arguments.ending();
    Launch launch = arguments.bind(gpu.kernel(FAMILY, name + ending), map.scales());
    int outputs = r >= 4 ? 8 : 4; // of a block at a time
    int turns = Math.ceilDiv(map.outputs(), outputs);
    int turnsOfBlock = Math.ceilDiv(turns, mostBlocks); // as many for each block, or one less
    int chunks = Math.min(Math.ceilDiv(map.in(), CHUNK), STAGE_FLOATS / CHUNK / r);
    int sharedBytes = r * chunks * (CHUNK + outputs) * Float.BYTES;
    return new RowClass(launch, Math.ceilDiv(turns, turnsOfBlock), sharedBytes);
  }

  /** The kernel for up to a number of rows. */
  private record RowClass(Launch launch, int blocks, int sharedBytes) {
    void run(int rows) {
      launch.set(LinearArguments.rowsAt(1), rows).run(blocks, 1, 1, THREADS, 1, sharedBytes);
    }
  }
}
