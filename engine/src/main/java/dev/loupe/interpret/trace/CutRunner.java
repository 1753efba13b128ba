package dev.loupe.interpret.trace;

import dev.loupe.interpret.trace.Cut.Change;
import dev.loupe.interpret.trace.Cut.Site;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Pass;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.Sampler;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Reads one text many times, each time with other changes. The readings of a pass are sequences of
 * its batch; all of them begin at the first activation that is changed, from the residual stream
 * that was recorded there, so that nothing before it is computed again.
 *
 * <p>For one thread; the caller closes it.
 */
final class CutRunner implements AutoCloseable {
  /** Rows of a pass, unless one text has more: enough to keep the backend busy, soon done. */
  static final int ROWS = 512;

  /** Hears of work that was done; throws what ends it. */
  interface Work {
    /**
     * A layer was computed.
     *
     * @param rows how many rows of it
     */
    void done(long rows);
  }

  private final Transformer model;
  private final Ops ops;
  private final Gpt2Config config;
  private final int[] ids;
  private final Work work;
  private final int sequences; // most of a pass
  private final TensorArena arena;
  private final Tensor keys;
  private final Tensor values;
  private final Activations room;
  private final Tensor last; // [sequences, C]: the last row of each
  private final Tensor normed; // [sequences, C]
  private final Tensor logits; // [sequences, V]
  private final Recording clean;

  /**
   * @param ids the text, up to the token after which the model speaks
   */
  CutRunner(Transformer model, int[] ids, Work work) {
    this.model = model;
    this.ids = ids.clone();
    this.work = work;
    ops = model.ops();
    config = model.config();
    sequences = Math.max(1, ROWS / ids.length);
    int rows = sequences * ids.length;
    int cells = Math.multiplyExact(sequences, KvCache.rounded(ids.length));
    ops.requireRoom(new SessionSize(config, cells, 1, sequences, false, Optional.empty(), 0));
    arena = ops.arena();
    try {
      keys = arena.activations(cells, config.nEmbd());
      values = arena.activations(cells, config.nEmbd());
      room = Activations.allocate(arena, config, rows);
      last = arena.allocate(sequences, config.nEmbd());
      normed = arena.activations(sequences, config.nEmbd());
      logits = arena.allocate(sequences, config.vocabSize());
      clean = record(this.ids);
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  /** The text as the model reads it. */
  Recording clean() {
    return clean;
  }

  /** Readings of a pass. */
  int sequences() {
    return sequences;
  }

  /**
   * Reads a text of as many tokens as the model does, and keeps what its parts make.
   *
   * @throws dev.loupe.sampling.NotFiniteException if a logit is NaN or infinite
   */
  Recording record(int[] text) {
    Recording all =
        new Recording(
            text.length, config.nLayer(), config.nEmbd(), config.headDim(), config.vocabSize());
    try (Pass pass = begin(text, 1)) {
      Activations a = room.rows(text.length);
      model.embed(pass, a);
      for (int layer = 0; layer < config.nLayer(); layer++) {
        read(a.x(), all.x[layer]);
        model.attend(pass, a, layer);
        read(a.y(), all.y[layer]);
        model.addAttention(pass, a, layer);
        read(a.x(), all.mid[layer]);
        model.addMlp(pass, a, layer);
        work.done(text.length);
      }
      read(a.x(), all.x[config.nLayer()]);
      logits(pass, a, 1, (_, row) -> System.arraycopy(row, 0, all.logits, 0, row.length));
    }
    return all;
  }

  private Pass begin(int[] text, int n) {
    Batch batch = Batch.texts(Collections.nCopies(n, text));
    KvCache kv =
        KvCache.ofOnePass(keys, values, config.nLayer(), config.nHead(), sequences, ids.length);
    return model.begin(batch, kv, Mask.CAUSAL);
  }

  /** Takes the logits of a reading. */
  interface Logits {
    /**
     * Takes them.
     *
     * @param cut which of the readings
     * @param row [V]; used again
     */
    void of(int cut, float[] row);
  }

  /**
   * Reads the text with each of some changes.
   *
   * @param sink gets the logits after the last token of each reading, in no order
   */
  void run(List<Cut> cuts, Logits sink) {
    Integer[] order = IntStream.range(0, cuts.size()).boxed().toArray(Integer[]::new);
    Arrays.sort(order, Comparator.comparingInt(i -> cuts.get(i).stage()));
    for (int from = 0; from < order.length; ) {
      int stage = cuts.get(order[from]).stage();
      int to = from + 1;
      while (to < order.length && to - from < sequences && cuts.get(order[to]).stage() == stage) {
        to++;
      }
      int first = from;
      List<Cut> some = new ArrayList<>();
      for (int i = from; i < to; i++) {
        some.add(cuts.get(order[i]));
      }
      pass(some, (i, row) -> sink.of(order[first + i], row));
      from = to;
    }
  }

  private void pass(List<Cut> cuts, Logits sink) {
    int n = cuts.size();
    int stage = cuts.getFirst().stage();
    Site begin = Site.of(stage);
    Activations a = room.rows(n * ids.length);
    try (Pass pass = begin(ids, n)) {
      for (int layer = stage / 3; layer < config.nLayer(); layer++) {
        boolean first = layer == stage / 3;
        if (!first || begin == Site.RESIDUAL) {
          if (first) {
            fill(a.x(), n, clean.x[layer]);
          }
          changeResidual(cuts, layer, a);
          model.attend(pass, a, layer);
        } else if (begin == Site.HEAD) {
          fill(a.x(), n, clean.x[layer]);
          fill(a.y(), n, clean.y[layer]);
        }
        if (!first || begin != Site.MLP) {
          changeHeads(cuts, layer, a);
          model.addAttention(pass, a, layer);
        } else {
          fill(a.x(), n, clean.mid[layer]);
        }
        addMlp(pass, cuts, layer, a);
        work.done((long) n * ids.length);
      }
      if (stage == 3 * config.nLayer()) {
        fill(a.x(), n, clean.x[config.nLayer()]);
        work.done((long) n * ids.length);
      }
      changeResidual(cuts, config.nLayer(), a);
      logits(pass, a, n, sink);
    }
  }

  private void changeResidual(List<Cut> cuts, int layer, Activations a) {
    for (int s = 0; s < cuts.size(); s++) {
      for (Change change : cuts.get(s).at(Site.RESIDUAL, layer)) {
        replace(a.x(), s, change, null);
      }
    }
  }

  private void changeHeads(List<Cut> cuts, int layer, Activations a) {
    for (int s = 0; s < cuts.size(); s++) {
      List<Change> changes = cuts.get(s).at(Site.HEAD, layer);
      if (changes.isEmpty()) {
        continue;
      }
      Tensor of = sequence(a.y(), s);
      float[] y = new float[of.cols()];
      read(of, y);
      for (Change change : changes) {
        set(y, change, change.head() * config.headDim(), config.headDim());
      }
      ops.write(y, of);
    }
  }

  private void addMlp(Pass pass, List<Cut> cuts, int layer, Activations a) {
    float @Nullable [][] before = new float[cuts.size()][];
    for (int s = 0; s < cuts.size(); s++) {
      if (!cuts.get(s).at(Site.MLP, layer).isEmpty()) {
        before[s] = new float[ids.length * config.nEmbd()];
        read(sequence(a.x(), s), before[s]);
      }
    }
    model.addMlp(pass, a, layer);
    for (int s = 0; s < cuts.size(); s++) {
      for (Change change : cuts.get(s).at(Site.MLP, layer)) {
        replace(a.x(), s, change, before[s]);
      }
    }
  }

  /**
   * Rows of the residual stream become others.
   *
   * @param before what they are added to, if anything
   */
  private void replace(Tensor x, int s, Change change, float @Nullable [] before) {
    int width = config.nEmbd();
    float[] rows = change.values().clone();
    for (int i = 0; before != null && i < rows.length; i++) {
      rows[i] += before[change.from() * width + i];
    }
    int first = s * ids.length + change.from();
    ops.write(rows, x.rows(first, change.to() - change.from()));
  }

  private void set(float[] rows, Change change, int column, int columns) {
    for (int t = change.from(); t < change.to(); t++) {
      System.arraycopy(
          change.values(),
          (t - change.from()) * columns,
          rows,
          t * config.nEmbd() + column,
          columns);
    }
  }

  /**
   * What the MLP of a layer would add.
   *
   * @param mids [T, C]: what it would read
   * @return [T, C], for each of them
   */
  List<float[]> mlp(int layer, List<float[]> mids) {
    List<float[]> outputs = new ArrayList<>();
    for (int from = 0; from < mids.size(); from += sequences) {
      List<float[]> some = mids.subList(from, Math.min(from + sequences, mids.size()));
      Activations a = room.rows(some.size() * ids.length);
      try (Pass pass = begin(ids, some.size())) {
        for (int s = 0; s < some.size(); s++) {
          ops.write(some.get(s), sequence(a.x(), s));
        }
        model.addMlp(pass, a, layer);
        work.done((long) some.size() * ids.length);
        for (int s = 0; s < some.size(); s++) {
          float[] out = new float[some.get(s).length];
          read(sequence(a.x(), s), out);
          for (int i = 0; i < out.length; i++) {
            out[i] -= some.get(s)[i];
          }
          outputs.add(out);
        }
      }
    }
    return outputs;
  }

  private void logits(Pass pass, Activations a, int n, Logits sink) {
    for (int s = 0; s < n; s++) {
      ops.copy(a.x().rows((s + 1) * (a.x().rows() / n) - 1, 1), last.rows(s, 1));
    }
    model.logits(pass, last.rows(0, n), normed.rows(0, n), logits.rows(0, n));
    float[] row = new float[config.vocabSize()];
    for (int s = 0; s < n; s++) {
      ops.read(logits, s, row, row.length);
      Sampler.requireFinite(row);
      sink.of(s, row);
    }
  }

  /** The rows of one reading, as a single one. */
  private Tensor sequence(Tensor all, int s) {
    Tensor rows = all.rows(s * ids.length, ids.length);
    return new Tensor(rows.dtype(), 1, ids.length * all.cols(), rows.data());
  }

  private void fill(Tensor all, int n, float[] of) {
    for (int s = 0; s < n; s++) {
      ops.write(of, sequence(all, s));
    }
  }

  private void read(Tensor from, float[] into) {
    ops.read(new Tensor(from.dtype(), 1, into.length, from.data()), 0, into, into.length);
  }

  @Override
  public void close() {
    arena.close();
  }
}
