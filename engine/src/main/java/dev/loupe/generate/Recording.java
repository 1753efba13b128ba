package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.attention.AttentionRowConsumer;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.AttentionSelection.Part;
import dev.loupe.attention.ValueNorms;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.util.EnumMap;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** Takes the attention that a run keeps out of the passes that its sequences are part of. */
final class Recording implements AttentionRecorder.Sequences {
  private final Run run;
  private final AttentionPlan plan;
  private final AttentionRecorder recorder;
  private final @Nullable ValueNorms norms;

  /**
   * @param arena for what rows are rebuilt in
   * @param keys most keys that a row reads
   * @param scratch bytes for that
   */
  Recording(Run run, Ops ops, TensorArena arena, int keys, long scratch) {
    this.run = run;
    plan = run.plan().orElseThrow();
    norms = run.valueNorms();
    Map<Kind, AttentionRowConsumer> consumers = new EnumMap<>(Kind.class);
    for (Kind kind : plan.kept()) {
      consumers.put(
          kind,
          (slot, layer, head, query, row) -> {
            Sequence sequence = run.inSlot(slot);
            for (Sample sample : run.readers(sequence)) {
              sample.attention.put(kind, layer, head, sequence.dropped, query, row);
            }
          });
    }
    recorder =
        new AttentionRecorder(
            arena, plan, keys, run.longest(), ops.rebuildsAhead(), scratch, consumers, this);
  }

  /** Bytes that rows are rebuilt in, for rows of at most {@code keys} keys. */
  static long scratchBytes(Optional<AttentionPlan> plan, int keys, Ops ops) {
    return plan.map(p -> AttentionRecorder.scratchBytes(p, keys, ops.rebuildsAhead())).orElse(0L);
  }

  /** Whether a selection needs the norms of values. */
  static boolean needsNorms(Optional<AttentionSelection> selection) {
    return selection.map(s -> s.keeps(Part.VALUE_NORMS)).orElse(false);
  }

  @Override
  public int dropped(int slot) {
    return run.inSlot(slot).dropped;
  }

  @Override
  public int recorded(int slot) {
    return run.inSlot(slot).recorded;
  }

  /**
   * Sees the attention of a layer.
   *
   * @param first first row of the batch that is of this run
   * @param rows how many are
   */
  void observe(Ops ops, AttentionInput in, Tensor lse, int first, int rows) {
    if (norms != null && plan.layers().contains(in.layer())) {
      norms.observe(
          ops,
          in,
          first,
          rows,
          plan.heads(),
          (slot, layer, head, position, norm) -> {
            Sequence sequence = run.inSlot(slot);
            for (Sample sample : run.readers(sequence)) {
              sample.attention.value(layer, head, sequence.dropped + position, norm);
            }
          });
    }
    recorder.observe(ops, in, lse, first, rows);
  }

  /** At the end of a pass. */
  void finish() {
    recorder.finish();
  }

  /** Takes the row of the token that a decoding step on the device has read. */
  void observe(Steps steps, Sequence sequence, int position) {
    recorder.observe(steps, sequence.slot, position);
  }
}
