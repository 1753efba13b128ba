package dev.loupe.generate;

import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Tensor;
import dev.loupe.sampling.Sampler;
import java.util.List;

/** Chooses tokens on the host, from the logits of one pass after the other. */
final class HostDecoder implements Decoder {
  private final Session session;
  private final Transformer model;
  private final Activations activations;
  private final Tensor logits; // [S, V]
  private final Sampler sampler;
  private final float[] row;
  private Batch batch = Batch.step();
  private Activations a;
  private List<Sample> last = List.of();

  /**
   * @param logits those of the prompt's last token in row 0
   */
  HostDecoder(
      Session session,
      Transformer model,
      Activations activations,
      Tensor logits,
      Sampler sampler,
      int samples) {
    this.session = session;
    this.model = model;
    this.activations = activations;
    this.a = activations;
    this.logits = logits;
    this.sampler = sampler;
    row = new float[logits.cols()];
    for (int s = 1; s < samples; s++) { // all continue the same prompt
      model.ops().copy(logits.rows(0, 1), logits.rows(s, 1));
    }
  }

  @Override
  public void next(List<Sample> read, List<Sample> write) {
    if (!read.isEmpty()) {
      read(read);
      if (!write.isEmpty()) {
        model.logits(a, 0, logits.rows(0, write.size()));
      }
    }
    for (int r = 0; r < write.size(); r++) {
      Sample sample = write.get(r);
      model.ops().read(logits, r, row, row.length);
      int id = sample.choose(sampler, row);
      session.accept(sample, id, row);
    }
  }

  private void read(List<Sample> read) {
    int position = session.positionOf(read);
    if (!read.equals(last)) {
      batch = Batch.step(read.stream().mapToInt(sample -> sample.number).toArray());
      a = activations.rows(read.size());
      last = List.copyOf(read);
    }
    for (int r = 0; r < read.size(); r++) {
      batch.set(r, read.get(r).lastId(), position);
    }
    session.forward(batch, a);
  }

  @Override
  public void close() {}
}
