package dev.loupe.attention;

import dev.loupe.attention.AttentionSelection.Part;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import java.util.List;
import java.util.Optional;

/** The attention that one sample keeps: of each part that was asked for, a container. */
public record AttentionResult(
    Optional<AttentionMaps> maps,
    Optional<AttentionMaps> scores,
    Optional<AttentionStatistics> statistics,
    Optional<HeadStatistics> heads,
    Optional<AttentionRollout> rollout) {
  public static final AttentionResult NONE =
      new AttentionResult(
          Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty());

  /** Room for all that {@code selection} keeps, by {@code plan}, of a run of {@code tokens}. */
  public static AttentionResult allocate(
      AttentionSelection selection, AttentionPlan plan, int tokens) {
    int[] layers = ints(plan.layers());
    int[] heads = ints(plan.heads());
    return new AttentionResult(
        selection.keeps(Part.MAPS)
            ? Optional.of(AttentionMaps.allocate(layers, heads, tokens, plan.dtype()))
            : Optional.empty(),
        selection.keeps(Part.SCORES)
            ? Optional.of(AttentionMaps.allocate(layers, heads, tokens))
            : Optional.empty(),
        selection.keeps(Part.ROW_STATISTICS)
            ? Optional.of(AttentionStatistics.allocate(layers, heads, tokens, plan.top()))
            : Optional.empty(),
        selection.keeps(Part.HEAD_STATISTICS)
            ? Optional.of(heads(selection, layers, heads))
            : Optional.empty(),
        selection.keeps(Part.ROLLOUT)
            ? Optional.of(AttentionRollout.allocate(layers.length, heads.length, tokens))
            : Optional.empty());
  }

  private static HeadStatistics heads(AttentionSelection selection, int[] layers, int[] heads) {
    boolean norms = selection.keeps(Part.VALUE_NORMS);
    return selection.repeated() == 0
        ? HeadStatistics.ofText(layers, heads, norms)
        : HeadStatistics.ofRepeated(selection.repeated(), layers, heads, norms);
  }

  private static int[] ints(List<Integer> numbers) {
    return numbers.stream().mapToInt(n -> n).toArray();
  }

  /** The tokens that come next; their rows follow. */
  public void tokens(int... ids) {
    heads.ifPresent(h -> h.tokens(ids));
  }

  /** The norm of what a head writes for a token that it reads fully. */
  public void value(int layer, int head, int position, float norm) {
    heads.orElseThrow().value(layer, head, position, norm);
  }

  /**
   * Takes a row of {@code kind}, or the statistics of one.
   *
   * @param first the first token that the model still reads
   */
  public void put(Kind kind, int layer, int head, int first, int query, float[] row) {
    switch (kind) {
      case PROBABILITIES -> {
        maps.ifPresent(m -> m.put(layer, head, query, row));
        heads.ifPresent(h -> h.row(layer, head, first, query, row));
        rollout.ifPresent(r -> r.put(layer, query, row));
      }
      case SCORES -> scores.orElseThrow().put(layer, head, query, row);
      case STATISTICS -> {
        statistics.ifPresent(s -> s.put(layer, head, query, row));
        heads.ifPresent(h -> h.spread(layer, head, first, query, row));
      }
    }
  }

  /** That of the first {@code tokens} tokens, sharing memory. */
  public AttentionResult first(int tokens) {
    return new AttentionResult(
        maps.map(m -> m.first(tokens)),
        scores.map(m -> m.first(tokens)),
        statistics.map(s -> s.first(tokens)),
        heads, // knows of no more
        rollout.map(r -> r.first(tokens)));
  }
}
