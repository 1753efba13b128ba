package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.ops.Steps;
import dev.loupe.sampling.NotFiniteException;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Decodes by steps that a device carries out ahead of the host, which takes their tokens. */
final class DeviceDecoder {
  private final Run run;
  private final Steps steps;
  private final Passes passes;
  private final int positions;
  private final float @Nullable [] row; // of logits, where scores are wanted

  /**
   * @param positions those that the model has
   * @param row for logits [V], where scores are wanted
   */
  DeviceDecoder(Run run, Steps steps, Passes passes, int positions, float @Nullable [] row) {
    this.run = run;
    this.steps = steps;
    this.passes = passes;
    this.positions = positions;
    this.row = row;
  }

  /** Writes until the run has ended. All sequences stand at the same position. */
  void decode() {
    List<Sequence> writing = new ArrayList<>(run.sequences);
    List<Sequence> read = List.of();
    while (!run.ended()) {
      int position = read.isEmpty() ? 0 : positionOf(read);
      steps.next();
      AttentionRecorder recorder = run.recorder();
      if (recorder != null) {
        for (Sequence sequence : read) {
          recorder.observe(steps, sequence.slot, position);
          sequence.recorded = sequence.sample.length();
        }
      }
      for (Sequence sequence : writing) {
        accept(sequence);
      }
      run.endAfterStep(Thread.interrupted());
      List<Sequence> ended = writing.stream().filter(each -> each.sample.finished()).toList();
      writing.removeAll(ended);
      read = new ArrayList<>(writing);
      read.addAll(ended); // their last rows of attention come with the next step
    }
  }

  private void accept(Sequence sequence) {
    if (!steps.isFinite(sequence.slot)) {
      throw new NotFiniteException("a logit is NaN or infinite");
    }
    if (row != null) {
      steps.logits(sequence.slot, row);
    }
    run.accept(sequence, steps.id(sequence.slot), row);
  }

  /** Position of the newest tokens. */
  private int positionOf(List<Sequence> read) {
    Sequence any = read.getFirst();
    if (any.sample.length() - 1 - any.dropped == positions) {
      passes.slide(read);
      int[] newest = run.sequences.stream().mapToInt(each -> each.sample.lastId()).toArray();
      steps.restart(newest, any.sample.length() - 1 - any.dropped);
    }
    return any.sample.length() - 1 - any.dropped;
  }
}
