package dev.loupe.export;

import dev.loupe.attention.AttentionRollout;
import dev.loupe.attention.AttentionStatistics;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.attention.HeadStatistics.Edge;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

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
   * maps. Of heads head_entropy, head_induction and so on f4 [L, H], NaN where there is none, and
   * their edges: (query, key) i4 [L, H, K, 2] and weights f4 [L, H, K], -1 and 0 where a head has
   * fewer. rollout f4 [T, T], 0 above the diagonal.
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
      if (run.headStatistics().isPresent()) {
        heads(npz, run.headStatistics().get());
      }
      if (run.rollout().isPresent()) {
        rollout(npz, run.rollout().get());
      }
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

  private static void heads(NpzWriter npz, HeadStatistics all) throws IOException {
    long[] shape = {all.layers().length, all.heads().length};
    for (HeadScore score : scores(all)) {
      npz.array(
          "head_" + score.key(),
          NpzWriter.Type.F4,
          shape,
          out ->
              eachHead(
                  all,
                  (layer, head) ->
                      out.putFloats(new float[] {(float) all.score(score, layer, head)})));
    }
    edges(npz, "head_edges", all, (layer, head) -> all.edges(layer, head, false));
    edges(npz, "head_edges_without_first", all, (layer, head) -> all.edges(layer, head, true));
    if (all.hasValueNorms()) {
      edges(npz, "head_edges_by_norm", all, all::edgesByNorm);
    }
  }

  private interface Edges {
    List<Edge> of(int layer, int head);
  }

  private static void edges(NpzWriter npz, String name, HeadStatistics all, Edges edges)
      throws IOException {
    int most = HeadStatistics.EDGES;
    npz.array(
        name,
        NpzWriter.Type.I4,
        new long[] {all.layers().length, all.heads().length, most, 2},
        out ->
            eachHead(
                all,
                (layer, head) -> {
                  List<Edge> of = edges.of(layer, head);
                  for (int i = 0; i < most; i++) {
                    out.putInt(i < of.size() ? of.get(i).query() : -1);
                    out.putInt(i < of.size() ? of.get(i).key() : -1);
                  }
                }));
    npz.array(
        name + "_weights",
        NpzWriter.Type.F4,
        new long[] {all.layers().length, all.heads().length, most},
        out ->
            eachHead(
                all,
                (layer, head) -> {
                  float[] weights = new float[most];
                  List<Edge> of = edges.of(layer, head);
                  for (int i = 0; i < of.size(); i++) {
                    weights[i] = of.get(i).weight();
                  }
                  out.putFloats(weights);
                }));
  }

  private static void rollout(NpzWriter npz, AttentionRollout rollout) throws IOException {
    int t = rollout.tokens();
    npz.array(
        "rollout",
        NpzWriter.Type.F4,
        new long[] {t, t},
        out -> {
          for (int query = 0; query < t; query++) {
            out.putFloats(Arrays.copyOf(rollout.row(query), t));
          }
        });
  }

  /** The scores that are there. */
  static List<HeadScore> scores(HeadStatistics all) {
    return Arrays.stream(HeadScore.values())
        .filter(score -> all.hasValueNorms() || !score.needsValueNorms())
        .toList();
  }

  private interface OneHead {
    void write(int layer, int head) throws IOException;
  }

  private static void eachHead(HeadStatistics all, OneHead one) throws IOException {
    for (int layer : all.layers()) {
      for (int head : all.heads()) {
        one.write(layer, head);
      }
    }
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

  /**
   * {@code layer,head,query,query_token,entropy,mean_distance,key1,weight1,...}, as CsvExport; then
   * the scores of the row's head, {@code head_entropy,...}, the same in all of its lines.
   */
  static void csv(Generation run, Path file) throws IOException {
    AttentionStatistics all = run.statistics().orElseThrow();
    try (Writer out = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
      out.write("layer,head,query,query_token,entropy,mean_distance");
      for (int i = 1; i <= all.top(); i++) {
        out.write(",key%d,weight%d".formatted(i, i));
      }
      for (HeadScore score : run.headStatistics().map(StatisticsExport::scores).orElse(List.of())) {
        out.write(",head_" + score.key());
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
    if (run.headStatistics().isPresent()) {
      HeadStatistics heads = run.headStatistics().get();
      for (HeadScore score : scores(heads)) {
        line.append(',').append(number(heads.score(score, layer, head)));
      }
    }
    return line.append('\n');
  }

  /** As a float, which is what it is a mean of; nothing where there is none. */
  static String number(double score) {
    return Double.isNaN(score) ? "" : Float.toString((float) score);
  }
}
