package dev.loupe.interpret;

import dev.loupe.attention.AttentionRollout;
import dev.loupe.attention.ValueNorms;
import java.util.Arrays;
import java.util.function.BiConsumer;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Maps that are made of a text's attention, computed when somebody first asks for them. */
final class DerivedMaps {
  /** Says the norms of all tokens in all heads of a layer. */
  interface Norms extends BiConsumer<Integer, ValueNorms.Listener> {}

  private final ActivationCache cache;
  private final float[][][] norms; // [L][H][T], a layer as it is asked for
  private float @Nullable [][] rollout; // see AttentionRollout.maps

  DerivedMaps(ActivationCache cache) {
    this.cache = cache;
    norms = new float[cache.layers()][][];
  }

  /** As {@link ActivationCache#rebuild}, of value-weighted maps. */
  void valueWeighted(
      int layer, int[] heads, int from, int to, Norms source, AttentionRowConsumer sink) {
    if (norms[layer] == null) {
      float[][] all = new float[cache.heads()][cache.tokens().size()];
      source.accept(layer, (_, _, head, position, norm) -> all[head][position] = norm);
      norms[layer] = all;
    }
    float[][] ofLayer = norms[layer];
    cache.rebuild(
        layer,
        heads,
        from,
        to,
        (head, query, row) -> {
          int keys = cache.keys(query);
          double sum = 0;
          for (int key = 0; key < keys; key++) {
            row[key] *= ofLayer[head][key];
            sum += row[key];
          }
          for (int key = 0; key < keys && sum > 0; key++) {
            row[key] = (float) (row[key] / sum);
          }
          sink.row(head, query, row);
        });
  }

  /** As {@link ActivationCache#rebuild}, of rollout; head 0 stands for all. */
  void rollout(int layer, int from, int to, AttentionRowConsumer sink) {
    float[][] all = rollout;
    if (all == null) {
      all = rollout();
      rollout = all;
    }
    for (int query = from; query < to; query++) {
      int at = query * (query + 1) / 2;
      sink.row(0, query, Arrays.copyOfRange(all[layer], at, at + query + 1));
    }
  }

  private float[][] rollout() {
    int tokens = cache.tokens().size();
    int[] heads = IntStream.range(0, cache.heads()).toArray();
    AttentionRollout made = AttentionRollout.allocate(cache.layers(), heads.length, tokens);
    for (int layer = 0; layer < cache.layers(); layer++) {
      int of = layer;
      cache.rebuild(layer, heads, 0, tokens, (_, query, row) -> made.put(of, query, row));
    }
    return made.maps();
  }
}
