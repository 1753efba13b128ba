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
import org.jspecify.annotations.Nullable;

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
              "a warp a row of W and 512 of k, 16 bytes a load, chunks added in order, x normalised"
                  + " on the way",
              "1 to 8 rows; rows of W are multiples of 16 bytes, to normalise them of 8 elements",
              ELEMENTS,
              75));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();
  private static final List<Variant> PLAIN = VARIANTS.subList(0, 1);

  // as in gemv.cu
  private static final int CHUNK = 512;
  private static final int STAGE_FLOATS = 8192;
  private static final int THREADS = 256;
  private static final int WARPS = THREADS / 32;
  private static final int BYTES_AHEAD = 64; // of a lane
  private static final int NORM_BYTES = 8; // of a row: mean and scale
  private static final int MOST_OUTPUTS = 16; // of a block's turn

  /** Grids as large as the card holds at once. */
  private static final int AS_RESIDENT = 0;

  private final Gpu gpu;

  /**
   * A layer norm of the rows that a linear map multiplies, which its kernel makes itself: to the
   * bit what {@link LayerNormKernels}' v3 makes.
   *
   * @param gamma [in] F32
   * @param beta [in] F32
   * @param eps added to the variance, more than 0
   */
  public record InputNorm(DeviceBuffer gamma, DeviceBuffer beta, float eps) {}

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

  /** Whether a variant normalises rows of {@code in} elements before it multiplies them. */
  public static boolean takesNorm(Variant variant, int in) {
    return !variant.isPlain() && in % 8 == 0;
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
    return prepare(variant, map, x, null, epilogue);
  }

  /**
   * Likewise, of rows that are normalised first.
   *
   * @param norm null for none; not before a {@link LinearEpilogue.Residual}
   * @throws IllegalArgumentException also if the variant does not {@link #takesNorm}
   */
  public LinearCall prepare(
      Variant variant,
      LinearMap map,
      DeviceBuffer x,
      @Nullable InputNorm norm,
      LinearEpilogue epilogue) {
    return prepare(variant, map, x, norm, epilogue, AS_RESIDENT);
  }

  /** Likewise, with at most {@code mostBlocks} blocks where the variant leaves a choice. */
  public LinearCall prepare(
      Variant variant,
      LinearMap map,
      DeviceBuffer x,
      @Nullable InputNorm norm,
      LinearEpilogue epilogue,
      int mostBlocks) {
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
    if (norm != null) {
      checkNorm(check, variant, norm, map.in(), epilogue);
    }
    LinearArguments arguments = new LinearArguments(check, map, x, epilogue);
    int maxRows = arguments.maxRows(MAX_ROWS);
    if (variant.isPlain()) {
      return plain(variant, arguments, check, maxRows);
    }
    RowClass[] classes = new RowClass[MAX_ROWS + 1]; // of 1, 2, 4 and 8 rows
    for (int r = 1; r <= MAX_ROWS && r < 2 * maxRows; r *= 2) {
      classes[r] = rowClass(variant, arguments, norm, r, mostBlocks);
    }
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      int r = rows == 1 ? 1 : Integer.highestOneBit(rows - 1) * 2;
      classes[r].run(rows);
    };
  }

  private static void checkNorm(
      BufferCheck check, Variant variant, InputNorm norm, int in, LinearEpilogue epilogue) {
    String problem = "";
    if (!takesNorm(variant, in)) {
      problem =
          variant.isPlain()
              ? "it does not normalise x"
              : "in is %d, not a multiple of 8, so it does not normalise x".formatted(in);
    } else if (epilogue instanceof LinearEpilogue.Residual) {
      problem = "no kernel adds the product of normalised rows to a residual";
    } else if (!(norm.eps() > 0)) {
      problem = "eps is %s, not more than 0".formatted(norm.eps());
    }
    if (!problem.isEmpty()) {
      throw new IllegalArgumentException("%s: %s".formatted(check.operation(), problem));
    }
    check.holds("gamma", norm.gamma(), Element.F32, in);
    check.holds("beta", norm.beta(), Element.F32, in);
  }

  private LinearCall plain(
      Variant variant, LinearArguments arguments, BufferCheck check, int maxRows) {
    LinearMap map = arguments.map();
    Element element = map.weight().element();
    Kernel kernel = gpu.kernel(FAMILY, variant.kernel(element) + arguments.ending());
    Launch launch = arguments.bind(kernel, map.scales(), element.code()).waits();
    int blocks = Math.ceilDiv(map.outputs(), THREADS);
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      launch.set(LinearArguments.rowsAt(2), rows).run(blocks, rows, 1, THREADS, 1, 0);
    };
  }

  private RowClass rowClass(
      Variant variant, LinearArguments arguments, @Nullable InputNorm norm, int r, int mostBlocks) {
    LinearMap map = arguments.map();
    Element element = map.weight().element();
    Kernel kernel =
        gpu.kernel(FAMILY, variant.kernel(element) + (r == 1 ? "" : "_r" + r) + arguments.ending());
    int chunks = Math.min(Math.ceilDiv(map.in(), CHUNK), STAGE_FLOATS / CHUNK / r);
    int rowsOfUnit = r >= 4 ? 2 : 1;
    int ahead = Math.max(1, BYTES_AHEAD / (CHUNK / 32 * element.bytes() * rowsOfUnit));
    // units for every warp, and those that it has on their way
    int shift = 2;
    while (chunks << shift < WARPS * ahead && rowsOfUnit << shift < MOST_OUTPUTS) {
      shift++;
    }
    int sharedBytes = sharedBytes(r, chunks, rowsOfUnit << shift);
    int blocks =
        mostBlocks == AS_RESIDENT
            ? gpu.multiprocessors() * Math.max(1, kernel.residentBlocks(THREADS, sharedBytes))
            : mostBlocks;
    // few outputs: more blocks, if their warps still have work
    while (shift > 0
        && 2L * Math.ceilDiv(map.outputs(), rowsOfUnit << shift) <= blocks
        && chunks << (shift - 1) >= WARPS) {
      shift--;
    }
    int turns = Math.ceilDiv(map.outputs(), rowsOfUnit << shift);
    int turnsOfBlock = Math.ceilDiv(turns, blocks); // as many for each block, or one less
    boolean residual = arguments.ending().equals("_residual"); // whose kernels take no norm
    Launch launch =
        residual
            ? arguments.bind(kernel, map.scales(), shift)
            : arguments.bind(
                kernel,
                map.scales(),
                shift,
                norm == null ? null : norm.gamma(),
                norm == null ? null : norm.beta(),
                norm == null ? 0f : norm.eps());
    return new RowClass(
        launch.waits(),
        LinearArguments.rowsAt(residual ? 2 : 5),
        Math.ceilDiv(turns, turnsOfBlock),
        sharedBytes(r, chunks, rowsOfUnit << shift));
  }

  /** Rows of x, the chunks' sums of a turn's outputs, and what the rows are normalised by. */
  private static int sharedBytes(int r, int chunks, int outputs) {
    return r * (chunks * (CHUNK + outputs) * Float.BYTES + NORM_BYTES);
  }

  /** The kernel for up to a number of rows. */
  private record RowClass(Launch launch, int rowsAt, int blocks, int sharedBytes) {
    void run(int rows) {
      launch.set(rowsAt, rows).run(blocks, 1, 1, THREADS, 1, sharedBytes);
    }
  }
}
