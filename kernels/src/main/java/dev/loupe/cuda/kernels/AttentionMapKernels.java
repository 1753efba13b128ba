package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * Attention maps, their scores, and statistics of their rows, rebuilt from the log-sum-exp that
 * every attention kernel leaves: P = exp(scale q.k - lse), for the heads and rows that are wanted.
 *
 * <p>Segments come from device memory, so a recorded graph can be replayed while positions move. A
 * head, a sequence or a position outside the cache reads nothing: dense maps and statistics show
 * NaN there, packed rows are left as they were.
 */
public final class AttentionMapKernels {
  static final String MAP = "attention_map";
  private static final String STATS = "attention_stats";
  private static final String LIMITS = "head size a multiple of 8 up to 128";

  /** Rows of the map family in the {@link KernelCatalogue}. */
  public static final List<Variant> MAPS =
      List.of(
          variant(MAP, "v0", "one thread a cell"),
          variant(MAP, "v1", "a warp for each row and 32 keys; for few rows"),
          variant(
              MAP,
              "v2",
              "tiles of 64 rows and 64 keys in shared memory: K is read once for 64 rows"),
          tensorVariant(MAP, "v2's tiles by tensor cores, copied by cp.async"));

  /** Rows of the statistics family in the {@link KernelCatalogue}. */
  public static final List<Variant> STATISTICS =
      List.of(
          variant(STATS, "v0", "one thread a row and head, one pass"),
          variant(STATS, "v1", "a block for each row and head, one pass; for few rows"),
          variant(
              STATS,
              "v2",
              "tiles of 64 rows and 64 keys, eight rows a warp: K is read once for 64 rows"),
          tensorVariant(STATS, "v2's tiles by tensor cores, the next keys fetched meanwhile"));

  /** Most ranks of {@link Statistics}. */
  public static final int MAX_TOP = 16;

  private static final int TILE = 64;
  private static final int TILE_SHARED_BYTES = TILE * (TILE + 8) * Float.BYTES;
  private static final int ROW_STATS_SHARED_BYTES = 4 * (2 + 2 * 32) * Float.BYTES;
  private static final int MAX_GRID = 65535;
  private static final int MAX_SEGMENTS = 32768; // with the row tiles they make one axis of a grid
  private static final int CAUSAL = 1;
  private static final int PACKED = 2;
  private static final int SCORES = 4;
  private static final int HALF = 8;

  private final Gpu gpu;
  private final CacheShape shape;
  private final Element activations;
  private final Element cache;
  private final AttentionMapLaunches launches;

  /**
   * @param shape of the keys of a layer
   * @param activations element of qkv: f32, f16 or bf16
   * @param cache element of the keys: f32, f16 or bf16
   */
  public AttentionMapKernels(Gpu gpu, CacheShape shape, Element activations, Element cache) {
    AttentionArguments.element("activations", activations);
    AttentionArguments.element("KV cache", cache);
    this.gpu = gpu;
    this.shape = shape;
    this.activations = activations;
    this.cache = cache;
    this.launches = new AttentionMapLaunches(gpu, shape, activations, cache);
  }

  /**
   * What one layer's attention has left.
   *
   * @param qkv [R, 3C]; q is read
   * @param k keys of the cache [S, H, capacity, D]
   * @param lse F32 [R, H]
   * @param segments I32 [segmentCount, 4]: {first row, rows, sequence, position of the first row},
   *     in the order of their rows
   * @param causal whether a row at position p attends to the keys 0 .. p; if not, to all keys of
   *     its sequence up to the last row of its segment
   * @param scale factor of q.k, as attention had it
   */
  public record Source(
      DeviceBuffer qkv,
      DeviceBuffer k,
      DeviceBuffer lse,
      DeviceBuffer segments,
      int segmentCount,
      boolean causal,
      float scale) {}

  /**
   * What is wanted of it.
   *
   * @param heads I32 [headCount], each in 0 .. H - 1, in any order
   * @param firstRow first row of the batch
   * @param rows how many rows from there
   */
  public record Selection(DeviceBuffer heads, int headCount, int firstRow, int rows) {}

  /** What a cell of a map shows. */
  public enum Cells {
    /** exp(scale q.k - lse); 0 where a row has no key. */
    PROBABILITIES,
    /** scale q.k; -infinity where a row has no key. */
    SCORES
  }

  /** Where the cells of a map lie. */
  public sealed interface Layout {
    /**
     * [heads, rows, columns]; keys from {@code columns} on are left out.
     *
     * @param columns width of a row
     */
    record Dense(int columns) implements Layout {}

    /**
     * Causal rows without what lies above the diagonal: a row at position p has p + 1 entries, rows
     * follow on each other.
     *
     * @param maxKeys at least as large as the last position of any row, plus 1
     * @param headStride entries from one head to the next: those of all rows, or more
     */
    record Packed(int maxKeys, long headStride) implements Layout {}
  }

  /**
   * Where statistics go.
   *
   * @param entropy F32 [heads, rows], -sum p log p in nats
   * @param distance F32 [heads, rows], sum of p |position - key|
   * @param topKeys I32 [heads, rows, k], the keys of the largest probabilities, the lower key first
   *     among equals; -1 where a row has fewer keys
   * @param topProbabilities F32 [heads, rows, k]; 0 where a row has fewer keys
   * @param k ranks, 1 to {@link #MAX_TOP}
   */
  public record Statistics(
      DeviceBuffer entropy,
      DeviceBuffer distance,
      DeviceBuffer topKeys,
      DeviceBuffer topProbabilities,
      int k) {}

  /** The map variant for so many rows: tiles pay where a segment fills a good part of one. */
  public Variant mapVariant(int rows, int segments) {
    return variantFor(MAPS, rows, segments);
  }

  /** The statistics variant for so many rows. */
  public Variant statisticsVariant(int rows, int segments) {
    return variantFor(STATISTICS, rows, segments);
  }

  private Variant variantFor(List<Variant> family, int rows, int segments) {
    Variant tensor = family.getLast();
    boolean can = activations == cache && tensor.supports(cache, gpu.computeCapability());
    List<Variant> candidates = new ArrayList<>(can ? family : family.subList(0, 3)).reversed();
    if (rows < 16L * segments) {
      Variant ofFewRows = family.get(1);
      candidates.remove(ofFewRows);
      candidates.addFirst(ofFewRows);
    }
    return gpu.choose(candidates, cache, rows);
  }

  /** Entries of the packed rows of positions {@code firstPosition} and on. */
  public static long packedEntries(int firstPosition, int rows) {
    long end = (long) firstPosition + rows;
    return end * (end + 1) / 2 - (long) firstPosition * (firstPosition + 1) / 2;
  }

  /**
   * Puts the map of a layer on the stream.
   *
   * @param out F32 or F16, written in full but for packed entries beyond the rows
   * @throws IllegalArgumentException if a buffer is too small, closed or of another element, or the
   *     layout does not fit the mask
   */
  public void map(
      Variant variant,
      Source source,
      Selection want,
      Cells cells,
      Layout layout,
      DeviceBuffer out) {
    Launch launch = launches.of(MAPS, variant);
    check(source, want);
    int columns = columns(layout, source.causal());
    long stride = headStride(layout, want.rows());
    if (out.element() != Element.F32 && out.element() != Element.F16) {
      throw new IllegalArgumentException(
          "a map as %s: maps are written as f32 or f16".formatted(out.element().suffix()));
    }
    AttentionArguments.buffer(gpu, "map", out, out.element(), entries(want.headCount(), stride));
    if (want.rows() == 0 || want.headCount() == 0) {
      return;
    }
    int flags =
        (source.causal() ? CAUSAL : 0)
            | (layout instanceof Layout.Packed ? PACKED : 0)
            | (cells == Cells.SCORES ? SCORES : 0)
            | (out.element() == Element.F16 ? HALF : 0);
    AttentionMapLaunches.setSource(launch, source);
    launch.set(4, want.heads()).set(5, out).set(6, stride);
    launches.setRows(launch, 7, source, want, flags);
    launch.set(12, columns);
    launches.setShape(launch, 13, source, variant);
    if (variant.isPlain() || variant.equals(MAPS.get(1))) {
      launch.run(tiles(columns, 128), want.headCount(), want.rows(), 128, 1, 0);
    } else {
      int rowTiles = tiles(want.rows(), TILE) + source.segmentCount();
      int shared =
          variant.equals(MAPS.getLast())
              ? Math.max(TILE_SHARED_BYTES, tensorTileBytes())
              : TILE_SHARED_BYTES;
      launch.run(tiles(columns, TILE), rowTiles, want.headCount(), 4 * TILE, 1, shared);
    }
  }

  /**
   * Puts the statistics of a layer's rows on the stream.
   *
   * @throws IllegalArgumentException if a buffer is too small, closed or of another element
   */
  public void statistics(Variant variant, Source source, Selection want, Statistics out) {
    Launch launch = launches.of(STATISTICS, variant);
    check(source, want);
    AttentionArguments.range("ranks of the largest probabilities", out.k(), 1, MAX_TOP);
    long cells = (long) want.headCount() * want.rows();
    AttentionArguments.buffer(gpu, "entropy", out.entropy(), Element.F32, cells);
    AttentionArguments.buffer(gpu, "distance", out.distance(), Element.F32, cells);
    AttentionArguments.buffer(gpu, "top keys", out.topKeys(), Element.I32, cells * out.k());
    AttentionArguments.buffer(
        gpu, "top probabilities", out.topProbabilities(), Element.F32, cells * out.k());
    if (cells == 0) {
      return;
    }
    AttentionMapLaunches.setSource(launch, source);
    launch
        .set(4, want.heads())
        .set(5, out.entropy())
        .set(6, out.distance())
        .set(7, out.topKeys())
        .set(8, out.topProbabilities())
        .set(9, out.k());
    launches.setRows(launch, 10, source, want, source.causal() ? CAUSAL : 0);
    launches.setShape(launch, 15, source, variant);
    if (variant.isPlain()) {
      launch.run(tiles(want.rows(), 128), want.headCount(), 1, 128, 1, 0);
    } else if (variant.equals(STATISTICS.get(1))) {
      launch.run(want.rows(), want.headCount(), 1, 128, 1, ROW_STATS_SHARED_BYTES);
    } else {
      int rowTiles = tiles(want.rows(), TILE) + source.segmentCount();
      int shared =
          variant.equals(STATISTICS.getLast())
              ? TILE_SHARED_BYTES + tensorTileBytes()
              : TILE_SHARED_BYTES;
      launch.run(rowTiles, want.headCount(), 1, 4 * TILE, 1, shared);
    }
  }

  private void check(Source source, Selection want) {
    AttentionArguments.scale(source.scale());
    AttentionArguments.range("segments", source.segmentCount(), 1, MAX_SEGMENTS);
    AttentionArguments.range("heads of a map", want.headCount(), 0, MAX_GRID);
    AttentionArguments.range("rows of a map", want.rows(), 0, MAX_GRID);
    AttentionArguments.range(
        "first row of a map", want.firstRow(), 0, Integer.MAX_VALUE - want.rows());
    long end = (long) want.firstRow() + want.rows();
    AttentionArguments.buffer(gpu, "qkv", source.qkv(), activations, end * 3 * shape.width());
    AttentionArguments.buffer(gpu, "K of the cache", source.k(), cache, shape.elements());
    AttentionArguments.buffer(gpu, "lse", source.lse(), Element.F32, end * shape.heads());
    AttentionArguments.buffer(
        gpu, "segments", source.segments(), Element.I32, 4L * source.segmentCount());
    AttentionArguments.buffer(gpu, "heads of a map", want.heads(), Element.I32, want.headCount());
  }

  private int columns(Layout layout, boolean causal) {
    return switch (layout) {
      case Layout.Dense(int columns) -> {
        AttentionArguments.range("columns of a map", columns, 1, 1 << 30);
        yield columns;
      }
      case Layout.Packed(int maxKeys, long _) -> {
        if (!causal) {
          throw new IllegalArgumentException(
              "a packed map leaves out what lies above the diagonal: it needs the causal mask");
        }
        AttentionArguments.range("most keys of a row", maxKeys, 1, shape.capacity());
        yield maxKeys;
      }
    };
  }

  private static long headStride(Layout layout, int rows) {
    return switch (layout) {
      case Layout.Dense(int columns) -> (long) rows * columns;
      case Layout.Packed(int _, long headStride) -> {
        if (headStride < rows) {
          throw new IllegalArgumentException(
              "packed heads %d entries apart: too few for %d rows".formatted(headStride, rows));
        }
        yield headStride;
      }
    };
  }

  private static long entries(int heads, long stride) {
    try {
      return Math.multiplyExact(heads, stride);
    } catch (ArithmeticException e) {
      throw new IllegalArgumentException(
          "a map of %d heads of %d entries: too large".formatted(heads, stride), e);
    }
  }

  private static int tiles(int n, int of) {
    return (int) (((long) n + of - 1) / of);
  }

  private static Variant variant(String family, String name, String idea) {
    return new Variant(family, name, idea, LIMITS, AttentionArguments.FLOATS, 75);
  }

  private static Variant tensorVariant(String family, String idea) {
    String limits = LIMITS + "; q and the cache of the same element";
    return new Variant(family, "v3", idea, limits, Set.of(Element.F16, Element.BF16), 80);
  }

  /** Bytes of a tile of Q and one of K, as the tensor-core versions lay them. */
  private int tensorTileBytes() {
    return 2 * TILE * (tiles(shape.headSize(), 16) * 16 + 8) * cache.bytes();
  }
}
