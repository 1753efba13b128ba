package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.INT;
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
 * What a checkpoint's matrices become when they are loaded. A checkpoint keeps them as [in,
 * outputs], a {@link LinearMap} as [outputs, in]; they come in chunks, some rows of the
 * checkpoint's matrix each, so that no second copy is ever whole.
 *
 * <p>Not for two threads at once.
 */
public final class WeightKernels {
  private static final String FAMILY = "weights";
  private static final Set<Element> ELEMENTS = Set.of(Element.F32, Element.F16, Element.BF16);
  private static final String LIMITS = "up to 2^31 - 1 weights, in up to 2^20";

  /** Ways to repack, the best first. */
  static final List<Variant> REPACK =
      List.of(
          row("repack", "transposes by tiles in shared memory, any element to any"),
          row("v0_repack", "one thread a weight"));

  /** Ways to quantise, likewise. */
  static final List<Variant> QUANTISE =
      List.of(
          row("quantise", "int8 in groups of 64, a warp a group; transposes by tiles"),
          row("v0_quantise", "int8 in groups of 64, one thread a group"));

  /** Ways to dequantise, likewise. */
  static final List<Variant> DEQUANTISE =
      List.of(
          row("dequantise", "from int8, 16 bytes a store"),
          row("v0_dequantise", "from int8, one thread a weight"));

  static final List<Variant> VARIANTS =
      Variant.plainestFirst(List.of(REPACK, QUANTISE, DEQUANTISE));

  private static final int MAX_IN = 1 << 20; // so that a grid has room for it

  // as in weights.cu
  private static final int COLUMNS = 32;
  private static final int WARPS = 8;
  private static final int THREADS = 256;

  private final Gpu gpu;
  private final Map<String, Launch> launches = new HashMap<>();

  /** On {@code gpu}; each kernel is loaded when it is first needed. */
  public WeightKernels(Gpu gpu) {
    this.gpu = gpu;
  }

  private static Variant row(String name, String idea) {
    return new Variant(FAMILY, name, idea, LIMITS, ELEMENTS, 75);
  }

  /**
   * Columns first .. first + n - 1 of W become the chunk's rows, rounded to nearest, ties to even.
   *
   * @param chunk [n, outputs] F32, F16 or BF16: rows first .. first + n - 1 of the checkpoint's
   *     [in, outputs]
   * @param to W [outputs, in] in F32, F16 or BF16; written
   * @throws IllegalArgumentException if a size does not fit, or a buffer is too small, closed, or
   *     of another element
   */
  public void repack(DeviceBuffer chunk, int first, int n, LinearMap to) {
    BufferCheck check = check("repack", to);
    DeviceBuffer w = to.weight();
    checkElement(check, "W", w);
    checkRange(check, first, n, to.in());
    checkOther(check, "chunk", chunk, (long) n * to.outputs(), to);
    Variant variant = gpu.choose(REPACK, chunk.element(), n);
    String name = variant.kernel(chunk.element());
    Launch launch =
        variant.isPlain()
            ? launch(name, POINTER, POINTER, INT, INT, INT, INT, INT, INT)
                .set(6, chunk.element().code())
                .set(7, w.element().code())
            : launch(name + "_" + w.element().suffix(), POINTER, POINTER, INT, INT, INT, INT);
    launch.set(0, chunk).set(1, w).set(2, first).set(3, n).set(4, to.in()).set(5, to.outputs());
    if (variant.isPlain()) {
      runPlain(launch, (long) n * to.outputs());
    } else {
      launch.run(tiles(to.outputs(), COLUMNS), tiles(n, 32), 1, 32, WARPS, tileBytes(32));
    }
  }

  /** A thread each. */
  private static void runPlain(Launch launch, long threads) {
    launch.run(tiles(threads, THREADS), 1, 1, THREADS, 1, 0);
  }

  /**
   * Columns first .. first + n - 1 of W become the chunk's rows in int8, to the last bit what
   * {@link Int8Weights} makes of them. A group in which a weight is not finite gets the scale NaN.
   *
   * @param chunk [n, outputs] F32, F16 or BF16: rows first .. first + n - 1 of the checkpoint's
   *     [in, outputs]
   * @param first a multiple of 64
   * @param n a multiple of 64, or as many as there are to the end
   * @param to W [outputs, in] in I8 and its scales; both written
   * @throws IllegalArgumentException if a size does not fit, or a buffer is too small, closed, or
   *     of another element
   */
  public void quantise(DeviceBuffer chunk, int first, int n, LinearMap to) {
    BufferCheck check = check("quantise", to);
    DeviceBuffer scales = scales(check, to);
    checkRange(check, first, n, to.in());
    if (first % Int8Weights.GROUP != 0 || (n % Int8Weights.GROUP != 0 && first + n != to.in())) {
      throw new IllegalArgumentException(
          "quantise: rows %d to %d of %d cut a group of 64".formatted(first, first + n, to.in()));
    }
    checkOther(check, "chunk", chunk, (long) n * to.outputs(), to);
    Variant variant = gpu.choose(QUANTISE, chunk.element(), n);
    if (variant.isPlain()) {
      plainQuantise(
          variant, chunk, to, scales, new Piece(0, to.outputs(), 1, first, n, to.outputs()));
      return;
    }
    launch(variant.kernel(chunk.element()), POINTER, POINTER, POINTER, INT, INT, INT, INT)
        .set(0, chunk)
        .set(1, to.weight())
        .set(2, scales)
        .set(3, first)
        .set(4, n)
        .set(5, to.in())
        .set(6, to.outputs())
        .run(
            tiles(to.outputs(), COLUMNS),
            tiles(n, Int8Weights.GROUP),
            1,
            32,
            WARPS,
            tileBytes(Int8Weights.GROUP));
  }

  /**
   * Likewise for a table that the checkpoint keeps as [outputs, in], such as wte, the tied head:
   * rows first .. first + n - 1 of W become the chunk's rows.
   *
   * @param chunk [n, in] F32, F16 or BF16
   * @param to W [outputs, in] in I8 and its scales; both written
   * @throws IllegalArgumentException if a size does not fit, or a buffer is too small, closed, or
   *     of another element
   */
  public void quantiseTable(DeviceBuffer chunk, int first, int n, LinearMap to) {
    BufferCheck check = check("quantise", to);
    DeviceBuffer scales = scales(check, to);
    checkRange(check, first, n, to.outputs());
    checkOther(check, "chunk", chunk, (long) n * to.in(), to);
    Variant variant = gpu.choose(QUANTISE, chunk.element(), n);
    if (variant.isPlain()) {
      plainQuantise(variant, chunk, to, scales, new Piece(first, n, to.in(), 0, to.in(), 1));
      return;
    }
    launch(variant.kernel(chunk.element()) + "_table", POINTER, POINTER, POINTER, INT, INT, INT)
        .set(0, chunk)
        .set(1, to.weight())
        .set(2, scales)
        .set(3, first)
        .set(4, n)
        .set(5, to.in())
        .run(tiles((long) n * tiles(to.in(), Int8Weights.GROUP), WARPS), 1, 1, 32, WARPS, 0);
  }

  /** A chunk as weights_v0_quantise_any wants it described. */
  private record Piece(int firstRow, int rows, int rowStride, int first, int n, int stride) {}

  private void plainQuantise(
      Variant variant, DeviceBuffer chunk, LinearMap to, DeviceBuffer scales, Piece piece) {
    Launch launch =
        launch(
                variant.kernel(chunk.element()),
                POINTER,
                POINTER,
                POINTER,
                INT,
                INT,
                INT,
                INT,
                INT,
                INT,
                INT,
                INT)
            .set(0, chunk)
            .set(1, to.weight())
            .set(2, scales)
            .set(3, piece.firstRow())
            .set(4, piece.rows())
            .set(5, piece.rowStride())
            .set(6, piece.first())
            .set(7, piece.n())
            .set(8, piece.stride())
            .set(9, to.in())
            .set(10, chunk.element().code());
    runPlain(launch, (long) piece.rows() * tiles(piece.n(), Int8Weights.GROUP));
  }

  /**
   * out = scale q, rounded to nearest, ties to even.
   *
   * @param from W [outputs, in] in I8 and its scales
   * @param out [outputs, in] F32, F16 or BF16; written
   * @throws IllegalArgumentException if a size does not fit, or a buffer is too small, closed, or
   *     of another element
   */
  public void dequantise(LinearMap from, DeviceBuffer out) {
    BufferCheck check = check("dequantise", from);
    DeviceBuffer scales = scales(check, from);
    long weights = (long) from.outputs() * from.in();
    checkOther(check, "out", out, weights, from);
    Variant variant = gpu.choose(DEQUANTISE, out.element(), from.outputs());
    String name = variant.kernel(out.element());
    Launch launch =
        variant.isPlain()
            ? launch(name, POINTER, POINTER, POINTER, INT, INT, INT).set(5, out.element().code())
            : launch(name, POINTER, POINTER, POINTER, INT, INT);
    int perThread = variant.isPlain() ? 1 : 16 / out.element().bytes();
    launch
        .set(0, from.weight())
        .set(1, scales)
        .set(2, out)
        .set(3, from.in())
        .set(4, from.outputs())
        .run(tiles(weights, THREADS * perThread), 1, 1, THREADS, 1, 0);
  }

  /** Passes a W of a size that the kernels count, live and on this GPU. */
  private BufferCheck check(String operation, LinearMap map) {
    BufferCheck check = new BufferCheck(operation, gpu);
    long weights = (long) map.outputs() * map.in();
    check.size("in", map.in(), 1, MAX_IN);
    check.size("in x outputs", weights, 1, Integer.MAX_VALUE);
    check.holds("W", map.weight(), weights);
    return check;
  }

  /** Passes the chunk or the result beside W. */
  private static void checkOther(
      BufferCheck check, String name, DeviceBuffer buffer, long elements, LinearMap map) {
    check.holds(name, buffer, elements);
    checkElement(check, name, buffer);
    if (buffer.address() == map.weight().address()) {
      throw new IllegalArgumentException(
          "%s: W and %s are one buffer".formatted(check.operation(), name));
    }
  }

  private static void checkElement(BufferCheck check, String name, DeviceBuffer buffer) {
    if (!ELEMENTS.contains(buffer.element())) {
      throw new IllegalArgumentException(
          "%s: %s holds %s, not F32, F16 or BF16"
              .formatted(check.operation(), name, buffer.element()));
    }
  }

  private static void checkRange(BufferCheck check, int first, int n, int all) {
    check.size("first", first, 0, all - 1);
    check.size("n", n, 1, all - first);
  }

  private static DeviceBuffer scales(BufferCheck check, LinearMap map) {
    DeviceBuffer scales = map.scales();
    if (scales == null) {
      throw new IllegalArgumentException(
          "%s: W holds %s, not I8".formatted(check.operation(), map.weight().element()));
    }
    long groups = (long) map.outputs() * Math.ceilDiv(map.in(), Int8Weights.GROUP);
    check.holds("scales", scales, groups);
    return scales;
  }

  private Launch launch(String name, Parameter... parameters) {
    return launches.computeIfAbsent(name, k -> new Launch(gpu.kernel(FAMILY, k), parameters));
  }

  private static int tiles(long n, int tile) {
    return Math.toIntExact(Math.ceilDiv(n, (long) tile));
  }

  /** Shared memory of a tile; a line has a float more than it needs, against bank conflicts. */
  private static int tileBytes(int rows) {
    return rows * (COLUMNS + 1) * Float.BYTES;
  }
}
