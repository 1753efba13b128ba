package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.DeviceScratch;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Attention of the rows of a pass over the KV cache: per head, y = softmax(scale q K^T) V, and the
 * log-sum-exp of each row, from which the attention maps can be rebuilt.
 *
 * <p>The bits of a row depend on its query, its keys, and its place in its segment; not on the
 * other segments of the pass. Not for two threads at once.
 */
public final class AttentionKernels implements AutoCloseable {
  static final String FILE = "attention";

  private static final String LIMITS = "head size a multiple of 8 up to 128";
  private static final Set<Element> HALVES = Set.of(Element.F16, Element.BF16);

  static final Variant V1 =
      variant("v1", "three kernels, all scores in memory", AttentionArguments.FLOATS, LIMITS, 75);
  static final Variant V2 =
      variant(
          "v2",
          "one kernel: online softmax, no score reaches memory; a warp for each row",
          AttentionArguments.FLOATS,
          LIMITS,
          75);
  static final Variant V3 =
      variant(
          "v3",
          "tiles of 64 rows and 32 keys in shared memory: K and V are read once for 64 rows; 4 x 4 scores a thread",
          AttentionArguments.FLOATS,
          LIMITS + "; above 96 it needs 76 KB of shared memory",
          75);
  static final Variant V4 =
      variant(
          "v4",
          "tensor cores in place of float units, P in registers, the next tile copied meanwhile, swizzled",
          HALVES,
          LIMITS,
          80);
  static final Variant V5 =
      variant(
          "v5",
          "as v4 with 32 rows a warp: each key read from shared memory serves twice",
          HALVES,
          "head size a multiple of 8 up to 80",
          80);
  static final Variant V6 =
      new Variant(
          FILE,
          "v6",
          "wgmma: scores of the next tile and P V behind the softmax of this one; warps that only bring tiles",
          "head size a multiple of 8 up to 64",
          HALVES,
          90,
          90);

  /** Rows of this family in the {@link KernelCatalogue}. */
  public static final List<Variant> VARIANTS = List.of(V1, V2, V3, V4, V5, V6);

  // v5 and v6 come before v4 where a card has been seen to run them faster
  private static final List<Variant> BEST_FIRST = List.of(V4, V5, V6, V3, V2, V1);

  private static final int THREADS = 128;
  private static final int WARPGROUPS = 3; // of version 6
  private static final int ALIGNMENT = 1024; // of its operands in shared memory
  private static final Map<Variant, List<Integer>> WIDTHS =
      Map.of(
          V3, List.of(32, 64, 96, 128),
          V4, List.of(16, 32, 64, 80, 96, 128),
          V5, List.of(64, 80),
          V6, List.of(64));

  // qkv, K, V, segments, y, lse, H, D, capacity, scale, causal
  private static final List<Parameter> PARAMETERS =
      List.of(POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT, INT, FLOAT, INT);
  // and for version 1: scratch, R, row length of the scratch
  private static final List<Parameter> SCRATCH_PARAMETERS = List.of(POINTER, INT, INT);

  private final Gpu gpu;
  private final CacheShape shape;
  private final Element element;
  private final Map<String, Launch> launches = new HashMap<>();
  private final DeviceScratch scratch; // version 1: [H, R, keys]
  private final List<Variant> bestFirst; // of those that take the shape

  /**
   * @param shape of the keys, and of the values, of a layer
   * @param element of qkv, keys, values and y: f32, f16 or bf16
   */
  public AttentionKernels(Gpu gpu, CacheShape shape, Element element) {
    AttentionArguments.element("activations and KV cache", element);
    this.gpu = gpu;
    this.shape = shape;
    this.element = element;
    this.scratch = new DeviceScratch(gpu, Element.F32);
    this.bestFirst = BEST_FIRST.stream().filter(v -> reason(v).isEmpty()).toList();
  }

  /**
   * Device memory that passes take beside the given buffers: version 1's scores, where no other
   * version serves; else none.
   *
   * @param rows most of a pass
   * @param keys most that a row sees
   */
  public static long scratchBytes(Gpu gpu, CacheShape shape, Element element, int rows, int keys) {
    AttentionKernels kernels = new AttentionKernels(gpu, shape, element);
    return gpu.find(kernels.bestFirst, element, rows).filter(V1::equals).isPresent()
        ? (long) shape.heads() * rows * keys * Float.BYTES
        : 0;
  }

  /**
   * The buffers of one layer's attention.
   *
   * @param qkv [R, 3C]; q is read
   * @param k keys of the cache [S, H, capacity, D], the pass's own among them
   * @param v values of the cache, likewise
   * @param y [R, C], written; not the memory of another
   * @param lse F32 [R, H], written: natural logarithm of the sum of exp(scale q.k)
   */
  public record Buffers(
      DeviceBuffer qkv, DeviceBuffer k, DeviceBuffer v, DeviceBuffer y, DeviceBuffer lse) {}

  /**
   * The variant for a pass: by design v4 where card and shape allow, else v3, else v2.
   *
   * @throws GpuException if none computes rightly on this card
   */
  public Variant variantFor(Segments segments) {
    int least = segments.count() > Segments.MAX_GRID / shape.heads() ? 1 : 0; // too many for v1
    List<Variant> candidates = bestFirst.subList(0, bestFirst.size() - least);
    return gpu.choose(candidates, element, segments.endRow());
  }

  /**
   * Puts one layer's attention on the stream.
   *
   * @param segments of the pass; rows that no segment has are left as they are
   * @param causal whether a row at position p attends to the keys 0 .. p; if not, to all keys of
   *     its sequence up to the last row of its segment
   * @param scale factor of q.k, positive
   * @throws IllegalArgumentException if a buffer is too small, closed, misaligned or of another
   *     element, a segment lies outside the cache, or the variant does not take this
   */
  public void run(
      Variant variant, Segments segments, boolean causal, float scale, Buffers buffers) {
    check(variant, segments, scale, buffers);
    if (segments.count() == 0) {
      return;
    }
    if (variant.equals(V1)) {
      runV1(segments, causal, scale, buffers);
      return;
    }
    String name = variant.kernel(element);
    int rows = 4;
    int shared = 4 * (shape.headSize() + 32) * Float.BYTES; // version 2: q and p of four warps
    if (!variant.equals(V2)) {
      int width = width(variant);
      name = "%s_%s_d%d_%s".formatted(FILE, variant.name(), width, element.suffix());
      rows = variant.equals(V5) || variant.equals(V6) ? 128 : 64;
      shared = sharedBytes(variant);
    }
    int threads = variant.equals(V6) ? WARPGROUPS * THREADS : THREADS;
    Launch launch =
        launches.computeIfAbsent(name, n -> new Launch(gpu.kernel(FILE, n), parameters(false)));
    set(launch, segments, causal, scale, buffers);
    int tiles = Math.ceilDiv(segments.longest(), rows);
    launch.run(tiles, shape.heads(), segments.count(), threads, 1, shared);
  }

  private void runV1(Segments segments, boolean causal, float scale, Buffers buffers) {
    int rows = segments.endRow();
    int keys = segments.mostKeys();
    DeviceBuffer s = scratch.atLeast((long) shape.heads() * rows * keys);
    int longest = segments.longest();
    int slices = segments.count() * shape.heads();
    for (String step : List.of("scores", "softmax", "values")) {
      Launch launch =
          launches.computeIfAbsent(
              "%s_v1_%s_%s".formatted(FILE, step, element.suffix()),
              n -> new Launch(gpu.kernel(FILE, n), parameters(true)));
      set(launch, segments, causal, scale, buffers);
      int p = PARAMETERS.size();
      launch.set(p, s).set(p + 1, rows).set(p + 2, keys);
      switch (step) {
        case "scores" -> launch.run(longest, Math.ceilDiv(keys, THREADS), slices, THREADS, 1, 0);
        case "softmax" ->
            launch.run(
                Math.ceilDiv(longest, THREADS), shape.heads(), segments.count(), THREADS, 1, 0);
        default -> launch.run(longest, 1, slices, THREADS, 1, 0);
      }
    }
  }

  private void set(Launch launch, Segments segments, boolean causal, float scale, Buffers buffers) {
    launch
        .set(0, buffers.qkv())
        .set(1, buffers.k())
        .set(2, buffers.v())
        .set(3, segments.buffer())
        .set(4, buffers.y())
        .set(5, buffers.lse())
        .set(6, shape.heads())
        .set(7, shape.headSize())
        .set(8, shape.capacity())
        .set(9, scale)
        .set(10, causal ? 1 : 0);
  }

  private void check(Variant variant, Segments segments, float scale, Buffers buffers) {
    String reason = reason(variant);
    if (!reason.isEmpty()) {
      throw new IllegalArgumentException("attention %s: %s".formatted(variant.name(), reason));
    }
    AttentionArguments.scale(scale);
    for (Segment s : segments.list()) {
      AttentionArguments.range("sequence of a segment", s.sequence(), 0, shape.sequences() - 1);
      AttentionArguments.range("keys of a segment", s.keys(), 1, shape.capacity());
    }
    int slices = variant.equals(V1) ? shape.heads() : 1;
    AttentionArguments.range(
        "segments of a launch", segments.count(), 0, Segments.MAX_GRID / slices);
    long rows = segments.endRow();
    buffer("segments", segments.buffer(), Element.I32, 4L * segments.count());
    buffer("qkv", buffers.qkv(), element, rows * 3 * shape.width());
    buffer("K of the cache", buffers.k(), element, shape.elements());
    buffer("V of the cache", buffers.v(), element, shape.elements());
    buffer("y", buffers.y(), element, rows * shape.width());
    buffer("lse", buffers.lse(), Element.F32, rows * shape.heads());
  }

  private void buffer(String what, DeviceBuffer buffer, Element expected, long atLeast) {
    AttentionArguments.buffer(gpu, what, buffer, expected, atLeast);
  }

  /** Why a variant cannot be used for this shape, element and card; empty if it can. */
  public String reason(Variant variant) {
    if (!VARIANTS.contains(variant)) {
      return "no such variant of attention";
    }
    if (!variant.supports(element, gpu.computeCapability())) {
      return "%s on compute capability %.1f: it takes %s on %s"
          .formatted(
              element.suffix(),
              gpu.computeCapability() / 10.0,
              variant.elements().stream().map(Element::suffix).sorted().toList(),
              variant.computeCapabilities());
    }
    if (variant.equals(V1) || variant.equals(V2)) {
      return "";
    }
    if (width(variant) < shape.headSize()) {
      return "heads %d wide: it takes %s".formatted(shape.headSize(), variant.limits());
    }
    int bytes = sharedBytes(variant);
    return bytes <= gpu.maxSharedBytes()
        ? ""
        : "heads %d wide need %d bytes of shared memory, this card has %d"
            .formatted(shape.headSize(), bytes, gpu.maxSharedBytes());
  }

  /** The width that a variant's kernel for this head size works on; 0 if there is none. */
  private int width(Variant variant) {
    for (int width : WIDTHS.getOrDefault(variant, List.of())) {
      if (width >= shape.headSize()) {
        return width;
      }
    }
    return 0;
  }

  private int sharedBytes(Variant variant) {
    int width = width(variant);
    if (variant.equals(V3)) { // Q and K padded, V, P padded
      return ((64 + 32) * (width + 4) + 32 * width + 64 * (32 + 4)) * Float.BYTES;
    }
    int tile = 64 * width * element.bytes();
    return variant.equals(V6) ? ALIGNMENT + 6 * tile : 4 * tile; // K and V, three buffers or two
  }

  private static Parameter[] parameters(boolean withScratch) {
    Parameter[] all =
        Arrays.copyOf(
            PARAMETERS.toArray(Parameter[]::new),
            PARAMETERS.size() + (withScratch ? SCRATCH_PARAMETERS.size() : 0));
    for (int i = PARAMETERS.size(); i < all.length; i++) {
      all[i] = SCRATCH_PARAMETERS.get(i - PARAMETERS.size());
    }
    return all;
  }

  private static Variant variant(
      String name, String idea, Set<Element> elements, String limits, int minComputeCapability) {
    return new Variant(FILE, name, idea, limits, elements, minComputeCapability);
  }

  /** Frees the scratch memory of version 1. */
  @Override
  public void close() {
    scratch.close();
  }
}
