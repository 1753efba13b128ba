package dev.loupe.attention;

import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;

/**
 * Attention of chosen layers and heads over T tokens, one row per query: how much query q read from
 * each key 0..q. The same container holds probabilities (rows sum to 1) or pre-softmax scores.
 *
 * <p>Rows arrive in any order and are stored causal-packed, q + 1 elements for query q, so all maps
 * take half the memory of square ones, and a quarter as halves. Layers and heads keep their numbers
 * in the model.
 */
public final class AttentionMaps {
  private static final long MOST_IN_MEMORY = 256L << 20;

  private final int[] layers;
  private final int[] heads;
  private final int tokens;
  private final DType dtype;
  private final long headStride; // elements from one head to the next
  private final MemorySegment data; // [layers, heads, headStride]

  private AttentionMaps(
      int[] layers, int[] heads, int tokens, DType dtype, long headStride, MemorySegment data) {
    this.layers = layers.clone();
    this.heads = heads.clone();
    this.tokens = tokens;
    this.dtype = dtype;
    this.headStride = headStride;
    this.data = data;
  }

  /** {@link #allocate(int[], int[], int, DType)} as F32. */
  public static AttentionMaps allocate(int[] layers, int[] heads, int tokens) {
    return allocate(layers, heads, tokens, DType.F32);
  }

  /**
   * Room for the maps of {@code layers} x {@code heads} over {@code tokens} tokens, all zero; the
   * numbers ascend. Large maps lie in a temporary file that the system may page out. The room goes
   * when the maps are garbage.
   *
   * @param dtype F32 or F16, which rows are rounded to
   * @throws OutOfMemoryError if there is no room for them
   */
  public static AttentionMaps allocate(int[] layers, int[] heads, int tokens, DType dtype) {
    long headStride = packedRow(tokens);
    long bytes = (long) dtype.bytes() * layers.length * heads.length * headStride;
    MemorySegment data = bytes > MOST_IN_MEMORY ? mapped(bytes) : Arena.ofAuto().allocate(bytes);
    return new AttentionMaps(layers, heads, tokens, dtype, headStride, data);
  }

  private static MemorySegment mapped(long bytes) {
    try {
      Path file = Files.createTempFile("loupe-attention-", ".f32");
      // A full disk would otherwise show only when a page is written, as an InternalError.
      long free = AtomicFile.room(file);
      // Deleted as soon as it is mapped: the mapping keeps the bytes, and nothing is left behind.
      try (FileChannel channel =
          FileChannel.open(
              file,
              StandardOpenOption.READ,
              StandardOpenOption.WRITE,
              StandardOpenOption.DELETE_ON_CLOSE)) {
        if (free < bytes) {
          throw new IOException("%d MB free in %s".formatted(free >> 20, file.getParent()));
        }
        return channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes, Arena.ofAuto());
      }
    } catch (IOException e) {
      OutOfMemoryError error =
          new OutOfMemoryError(
              "attention maps of %d MB have no room: %s; choose fewer layers or heads"
                  .formatted(bytes >> 20, e.getMessage()));
      error.initCause(e);
      throw error;
    }
  }

  /** The maps of the first {@code n} tokens, sharing memory with these. */
  public AttentionMaps first(int n) {
    if (n < 0 || n > tokens) {
      throw new IllegalArgumentException("the first %d of %d tokens".formatted(n, tokens));
    }
    return new AttentionMaps(layers, heads, n, dtype, headStride, data);
  }

  /** The layers that are here, by their number in the model, ascending. */
  public int[] layers() {
    return layers.clone();
  }

  /** The heads that are here of each layer, by their number in the model, ascending. */
  public int[] heads() {
    return heads.clone();
  }

  /** What the elements are stored as: F32 or F16. */
  public DType dtype() {
    return dtype;
  }

  /** Number of tokens, T: queries 0..T-1. */
  public int tokens() {
    return tokens;
  }

  /**
   * What {@code query} read in one head.
   *
   * @return [query + 1], key 0 first
   * @throws IllegalArgumentException if the layer, head or query is not here
   */
  public float[] row(int layer, int head, int query) {
    float[] row = new float[query + 1];
    dtype.decode(data, offset(layer, head, query), row, 0, row.length);
    return row;
  }

  /** Stores the row of {@code query}: its first {@code query + 1} floats of {@code weights}. */
  public void put(int layer, int head, int query, float[] weights) {
    dtype.encode(weights, 0, query + 1, data, offset(layer, head, query));
  }

  private long offset(int layer, int head, int query) {
    int l = Arrays.binarySearch(layers, layer);
    int h = Arrays.binarySearch(heads, head);
    if (l < 0 || h < 0 || query < 0 || query >= tokens) {
      throw new IllegalArgumentException(
          "no map of layer %d, head %d, query %d here: layers %s, heads %s, %d tokens"
              .formatted(
                  layer, head, query, Arrays.toString(layers), Arrays.toString(heads), tokens));
    }
    return dtype.bytes() * (((long) l * heads.length + h) * headStride + packedRow(query));
  }

  /** Elements before row {@code query} of a packed lower triangle. */
  private static long packedRow(int query) {
    return (long) query * (query + 1) / 2;
  }
}
