package dev.loupe;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionStatistics;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import java.util.List;
import java.util.Optional;

/** The attention that one sample keeps: of each kind that was asked for, a container. */
record KeptAttention(
    Optional<AttentionMaps> maps,
    Optional<AttentionMaps> scores,
    Optional<AttentionStatistics> statistics) {
  static final KeptAttention NONE =
      new KeptAttention(Optional.empty(), Optional.empty(), Optional.empty());

  /** Room for all that {@code plan} keeps of a run of {@code tokens} tokens. */
  static KeptAttention allocate(AttentionPlan plan, int tokens) {
    int[] layers = ints(plan.layers());
    int[] heads = ints(plan.heads());
    return new KeptAttention(
        maps(plan, Kind.PROBABILITIES, layers, heads, tokens),
        maps(plan, Kind.SCORES, layers, heads, tokens),
        plan.kept().contains(Kind.STATISTICS)
            ? Optional.of(AttentionStatistics.allocate(layers, heads, tokens, plan.top()))
            : Optional.empty());
  }

  private static Optional<AttentionMaps> maps(
      AttentionPlan plan, Kind kind, int[] layers, int[] heads, int tokens) {
    return plan.kept().contains(kind)
        ? Optional.of(AttentionMaps.allocate(layers, heads, tokens, plan.dtype(kind)))
        : Optional.empty();
  }

  private static int[] ints(List<Integer> numbers) {
    return numbers.stream().mapToInt(n -> n).toArray();
  }

  void put(Kind kind, int layer, int head, int query, float[] row) {
    switch (kind) {
      case PROBABILITIES -> maps.orElseThrow().put(layer, head, query, row);
      case SCORES -> scores.orElseThrow().put(layer, head, query, row);
      case STATISTICS -> statistics.orElseThrow().put(layer, head, query, row);
    }
  }

  /** That of the first {@code tokens} tokens, sharing memory. */
  KeptAttention first(int tokens) {
    return new KeptAttention(
        maps.map(m -> m.first(tokens)),
        scores.map(m -> m.first(tokens)),
        statistics.map(s -> s.first(tokens)));
  }
}
