package dev.loupe.export;

import dev.loupe.Generation;
import dev.loupe.attention.AttentionStatistics;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** Statistics of attention as numpy arrays and as a table. */
final class StatisticsExport {
  private StatisticsExport() {}

  /** One number of a row. */
  private interface Reading {
    float of(int layer, int head, int query);
  }

  /**
   * entropy and mean_distance f4 [L, H, T]; top_keys i4 and top_weights f4 [L, H, T, K], -1 and 0
   * where a row has fewer keys; layers, heads, token_ids, tokens, prompt_len, logprobs as with
   * maps.
   */
  static void npz(Generation run, Path file) throws IOException {
    AttentionStatistics all = run.statistics().orElseThrow();
    try (NpzWriter npz = new NpzWriter(file)) {
      numbers(npz, "entropy", all, all::entropy);
      numbers(npz, "mean_distance", all, all::meanDistance);
      long[] shape = shape(all, all.top());
      npz.array(
          "top_keys",
          NpzWriter.Type.I4,
          shape,
          out ->
              each(
                  all,
                  (layer, head, query) -> {
                    int[] keys = all.topKeys(layer, head, query);
                    for (int i = 0; i < all.top(); i++) {
                      out.putInt(i < keys.length ? keys[i] : -1);
                    }
                  }));
      npz.array(
          "top_weights",
          NpzWriter.Type.F4,
          shape,
          out ->
              each(
                  all,
                  (layer, head, query) ->
                      out.putFloats(Arrays.copyOf(all.topWeights(layer, head, query), all.top()))));
      NpzExport.numbers(npz, "layers", all.layers());
      NpzExport.numbers(npz, "heads", all.heads());
      NpzExport.tokens(npz, run.tokens(), run.promptLength());
    }
  }

  private static long[] shape(AttentionStatistics all, long... last) {
    long[] shape = {all.layers().length, all.heads().length, all.tokens(), 0};
    System.arraycopy(last, 0, shape, 3, last.length);
    return Arrays.copyOf(shape, 3 + last.length);
  }

  private static void numbers(NpzWriter npz, String name, AttentionStatistics all, Reading number)
      throws IOException {
    npz.array(
        name,
        NpzWriter.Type.F4,
        shape(all),
        out ->
            each(
                all,
                (layer, head, query) ->
                    out.putFloats(new float[] {number.of(layer, head, query)})));
  }

  private interface Row {
    void write(int layer, int head, int query) throws IOException;
  }

  private static void each(AttentionStatistics all, Row row) throws IOException {
    for (int layer : all.layers()) {
      for (int head : all.heads()) {
        for (int query = 0; query < all.tokens(); query++) {
          row.write(layer, head, query);
        }
      }
    }
  }

  /** {@code layer,head,query,query_token,entropy,mean_distance,key1,weight1,...}, as CsvExport. */
  static void csv(Generation run, Path file) throws IOException {
    AttentionStatistics all = run.statistics().orElseThrow();
    try (Writer out = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
      out.write("layer,head,query,query_token,entropy,mean_distance");
      for (int i = 1; i <= all.top(); i++) {
        out.write(",key%d,weight%d".formatted(i, i));
      }
      out.write('\n');
      each(all, (layer, head, query) -> out.append(line(run, all, layer, head, query)));
    }
  }

  private static StringBuilder line(
      Generation run, AttentionStatistics all, int layer, int head, int query) {
    StringBuilder line = new StringBuilder();
    line.append(layer).append(',').append(head).append(',').append(query).append(',');
    line.append(CsvExport.quoted(run.tokens().get(query).label())).append(',');
    line.append(all.entropy(layer, head, query)).append(',');
    line.append(all.meanDistance(layer, head, query));
    int[] keys = all.topKeys(layer, head, query);
    float[] weights = all.topWeights(layer, head, query);
    for (int i = 0; i < all.top(); i++) {
      line.append(',');
      if (i < keys.length) {
        line.append(keys[i]).append(',').append(weights[i]);
      } else {
        line.append(',');
      }
    }
    return line.append('\n');
  }
}
