package dev.loupe.attention;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;

/**
 * Attention of chosen layers and heads over T tokens, one row per query: how much query q read from
 * each key 0..q. The same container holds probabilities (rows sum to 1) or pre-softmax scores.
 *
 * <p>Rows arrive in any order and are stored causal-packed, q + 1 floats for query q, so all maps
 * take half the memory of square ones. Layers and heads keep their numbers in the model.
 */
public final class AttentionMaps {
  private static final long MOST_IN_MEMORY = 256L << 20;

  private final int[] layers;
  private final int[] heads;
  private final int tokens;
  private final long headStride; // floats from one head to the next
  private final MemorySegment data; // [layers, heads, headStride] f32

  private AttentionMaps(
      int[] layers, int[] heads, int tokens, long headStride, MemorySegment data) {
    this.layers = layers.clone();
    this.heads = heads.clone();
    this.tokens = tokens;
    this.headStride = headStride;
    this.data = data;
  }

  /**
   * Room for the maps of {@code layers} x {@code heads} over {@code tokens} tokens, all zero; the
   * numbers ascend. Large maps lie in a temporary file that the system may page out. The room goes
   * when the maps are garbage.
   *
   * @throws OutOfMemoryError if there is no room for them
   */
  public static AttentionMaps allocate(int[] layers, int[] heads, int tokens) {
    long headStride = packedRow(tokens);
    long bytes = 4L * layers.length * heads.length * headStride;
    MemorySegment data = bytes > MOST_IN_MEMORY ? mapped(bytes) : Arena.ofAuto().allocate(bytes);
    return new AttentionMaps(layers, heads, tokens, headStride, data);
  }

  private static MemorySegment mapped(long bytes) {
    try {
      Path file = Files.createTempFile("loupe-attention-", ".f32");
      // Deleted as soon as it is mapped: the mapping keeps the bytes, and nothing is left behind.
      try (FileChannel channel =
          FileChannel.open(
              file,
              StandardOpenOption.READ,
              StandardOpenOption.WRITE,
              StandardOpenOption.DELETE_ON_CLOSE)) {
        // A full disk would otherwise show only when a page is written, as an InternalError.
        // (The file itself has no name any more: on Unix it goes when it is opened.)
        long free = Files.getFileStore(file.getParent()).getUsableSpace();
        if (free < bytes) {
          throw new IOException("%d MB free in %s".formatted(free >> 20, file.getParent()));
        }
        return channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes, Arena.ofAuto());
      }
    } catch (IOException e) {
      OutOfMemoryError error =
          new OutOfMemoryError(
              "attention maps of %d MB have no room: %s".formatted(bytes >> 20, e.getMessage()));
      error.initCause(e);
      throw error;
    }
  }

  /** The maps of the first {@code n} tokens, sharing memory with these. */
  public AttentionMaps first(int n) {
    if (n < 0 || n > tokens) {
      throw new IllegalArgumentException("the first %d of %d tokens".formatted(n, tokens));
    }
    return new AttentionMaps(layers, heads, n, headStride, data);
  }

  /** The layers that are here, by their number in the model, ascending. */
  public int[] layers() {
    return layers.clone();
  }

  /** The heads that are here of each layer, by their number in the model, ascending. */
  public int[] heads() {
    return heads.clone();
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
    MemorySegment.copy(
        data, ValueLayout.JAVA_FLOAT, offset(layer, head, query), row, 0, row.length);
    return row;
  }

  /** Stores the row of {@code query}: its first {@code query + 1} floats of {@code weights}. */
  public void put(int layer, int head, int query, float[] weights) {
    MemorySegment.copy(
        weights, 0, data, ValueLayout.JAVA_FLOAT, offset(layer, head, query), query + 1);
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
    return 4 * (((long) l * heads.length + h) * headStride + packedRow(query));
  }

  /** Floats before row {@code query} of a packed lower triangle. */
  private static long packedRow(int query) {
    return (long) query * (query + 1) / 2;
  }
}
