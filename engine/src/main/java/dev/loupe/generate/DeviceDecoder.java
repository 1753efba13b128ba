package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.ops.Steps;
import dev.loupe.sampling.NotFiniteException;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Takes the tokens that a device chooses by itself, steps ahead of the host. */
final class DeviceDecoder implements Decoder {
  private final Session session;
  private final Steps steps;
  private final @Nullable AttentionRecorder recorder;
  private final List<Sample> all;
  private final float @Nullable [] row; // of logits, where somebody wants them

  DeviceDecoder(
      Session session,
      Steps steps,
      @Nullable AttentionRecorder recorder,
      List<Sample> all,
      float @Nullable [] row) {
    this.session = session;
    this.steps = steps;
    this.recorder = recorder;
    this.all = all;
    this.row = row;
  }

  @Override
  public void next(List<Sample> read, List<Sample> write) {
    int position = 0;
    if (!read.isEmpty()) {
      int dropped = session.dropped();
      position = session.positionOf(read);
      if (session.dropped() > dropped) {
        steps.restart(all.stream().mapToInt(Sample::lastId).toArray(), position);
      }
    }
    steps.next();
    if (recorder != null) {
      for (Sample sample : read) {
        recorder.observe(steps, sample.number, position);
      }
    }
    for (Sample sample : write) {
      if (!steps.isFinite(sample.number)) {
        throw new NotFiniteException("a logit is NaN or infinite");
      }
      if (row != null) {
        steps.logits(sample.number, row);
      }
      session.accept(sample, steps.id(sample.number), row);
    }
  }

  @Override
  public void close() {
    steps.close();
  }
}
