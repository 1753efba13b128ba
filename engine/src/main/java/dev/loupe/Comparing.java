package dev.loupe;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Tensor;
import dev.loupe.sampling.Distribution;
import dev.loupe.sampling.Sampler;
import java.util.ArrayList;
import java.util.List;

/** What two models make of the same text. */
final class Comparing {
  private static final int ROWS = 32; // of logits at a time

  private Comparing() {}

  /** Divergences [T] of {@code after} from {@code before}. */
  static List<Double> divergences(Transformer before, Transformer after, int[] ids) {
    List<Double> divergences = new ArrayList<>();
    try (Logits p = new Logits(before, ids);
        Logits q = new Logits(after, ids)) {
      for (int row = 0; row < ids.length; row++) {
        divergences.add(divergence(p.of(row), q.of(row)));
      }
    }
    return divergences;
  }

  private static double divergence(float[] before, float[] after) {
    Distribution p = new Distribution(before);
    Distribution q = new Distribution(after);
    double sum = 0;
    for (int id = 0; id < before.length; id++) {
      double logprob = p.logprob(id);
      sum += Math.exp(logprob) * (logprob - q.logprob(id));
    }
    return Math.max(0, sum); // where both are the same but for rounding
  }

  /** A text that a model has read, whose logits are made as they are asked for. */
  private static final class Logits implements AutoCloseable {
    private final Transformer model;
    private final Reading reading;
    private final Tensor logits;
    private final float[] row;
    private int first = -1; // row of those in logits

    Logits(Transformer model, int[] ids) {
      this.model = model;
      int rows = Math.min(ROWS, ids.length);
      reading = new Reading(model, ids, rows);
      try {
        logits = reading.arena().allocate(rows, model.config().vocabSize());
        row = new float[model.config().vocabSize()];
        reading.read(AttentionTap.NONE);
      } catch (Throwable e) {
        reading.close();
        throw e;
      }
    }

    /** Good until the next call. */
    float[] of(int r) {
      if (first < 0 || r >= first + logits.rows()) {
        first = r;
        Activations a = reading.activations();
        model.logits(a, r, logits.rows(0, Math.min(logits.rows(), a.x().rows() - r)));
      }
      model.ops().read(logits, r - first, row, row.length);
      Sampler.requireFinite(row);
      return row;
    }

    @Override
    public void close() {
      reading.close();
    }
  }

  /** Mean total variation of the rows of each head: [L][H]. */
  static List<List<Double>> variation(AttentionMaps before, AttentionMaps after) {
    List<List<Double>> all = new ArrayList<>();
    for (int layer : before.layers()) {
      List<Double> heads = new ArrayList<>();
      for (int head : before.heads()) {
        double sum = 0;
        for (int query = 0; query < before.tokens(); query++) {
          float[] p = before.row(layer, head, query);
          float[] q = after.row(layer, head, query);
          for (int key = 0; key <= query; key++) {
            sum += Math.abs((double) p[key] - q[key]) / 2;
          }
        }
        heads.add(sum / before.tokens());
      }
      all.add(heads);
    }
    return all;
  }
}
