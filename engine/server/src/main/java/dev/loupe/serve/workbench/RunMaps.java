package dev.loupe.serve.workbench;

import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.MapKind;
import dev.loupe.serve.http.ApiException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** The maps of a run, as bytes: those parts that a query asks for. */
final class RunMaps {
  private static final int MOST_SIDE = 256;

  private RunMaps() {}

  /** Bytes that {@link #thumbs} gives. */
  static long thumbsBytes(ActivationCache cache, Query query) {
    int[] layers = query.layers("layers", cache.layers());
    long side = Math.min(query.number("side", 64, 1, MOST_SIDE), cache.tokens().size());
    return (long) (layers[1] - layers[0]) * cache.heads() * side * side;
  }

  /** Small pictures of maps, as {@link MapPixels#thumbs} has them. */
  static byte[] thumbs(ActivationCache cache, Query query) {
    int[] layers = query.layers("layers", cache.layers());
    int side = query.number("side", 64, 1, MOST_SIDE);
    return MapPixels.thumbs(cache, layers[0], layers[1], side);
  }

  /** A part of one map, or of its difference from another run's. */
  static byte[] tile(Runs all, String id, Query query) {
    ActivationCache cache = all.run(id).cache();
    int tokens = cache.tokens().size();
    int[] queries = query.range("r", tokens);
    int[] keys = query.range("c", tokens);
    MapPixels.Part part =
        new MapPixels.Part(
            query.kind(),
            query.number("l", 0, 0, cache.layers() - 1),
            query.number("h", 0, 0, cache.heads() - 1),
            queries[0],
            queries[1],
            keys[0],
            keys[1],
            query.number("by", 1, 1, tokens));
    if ((long) part.rows() * part.columns() > MapPixels.MOST) {
      throw ApiException.invalid(
          400,
          null,
          "%d x %d: a tile has at most %d pixels"
              .formatted(part.rows(), part.columns(), MapPixels.MOST));
    }
    String minus = query.optionalId("minus");
    return minus == null
        ? MapPixels.part(cache, part)
        : MapPixels.difference(cache, all.run(minus).cache(), part);
  }

  /** [layers][heads][keys] of one query, those that are asked for; rollout has one head. */
  static byte[] rows(ActivationCache cache, Query query) {
    int at = query.number("q", cache.tokens().size() - 1, 0, cache.tokens().size() - 1);
    int layer = query.number("l", -1, 0, cache.layers() - 1);
    int head = query.number("h", -1, 0, cache.heads() - 1);
    MapKind kind = query.kind();
    boolean one = kind == MapKind.ROLLOUT;
    int[] heads = head < 0 && !one ? new int[cache.heads()] : new int[] {one ? 0 : head};
    if (heads.length > 1) {
      Arrays.setAll(heads, h -> h);
    }
    int first = Math.max(0, layer);
    int end = layer < 0 ? cache.layers() : layer + 1;
    int keys = cache.keys(at);
    ByteBuffer bytes =
        ByteBuffer.allocate(Float.BYTES * (end - first) * heads.length * keys)
            .order(ByteOrder.LITTLE_ENDIAN);
    for (int l = first; l < end; l++) {
      cache.rebuild(
          kind,
          l,
          heads,
          at,
          at + 1,
          (_, _, row) -> {
            for (int key = 0; key < keys; key++) {
              bytes.putFloat(row[key]);
            }
          });
    }
    return bytes.array();
  }
}
