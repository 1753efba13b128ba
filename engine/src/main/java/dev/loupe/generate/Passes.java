package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.model.Workspace;
import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Tensor;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Forward passes over pieces of several runs; each brings its runs what they asked for. Where a
 * row's bits would depend on the rows beside it, each pass has the pieces of one run, as it has
 * where the run is alone.
 */
final class Passes implements AutoCloseable {
  /** Rows of logits made at a time where those of a whole prompt are wanted. */
  static final int LOGIT_ROWS = 32;

  /**
   * Rows of a pass: tokens of a sequence that follow those in the cache.
   *
   * @param rows how many; 0 for a step on the device, which reads its newest token, and where the
   *     logits are known
   */
  record Piece(Sequence sequence, int rows) {}

  /** Neighbouring rows of a pass that are of one run. */
  private record Part(Run run, int first, int rows) {}

  private final Transformer model;
  private final Workspace workspace;
  private final int promptRows;
  private final Batch batch = new Batch();
  private final float[] row; // of logits
  private Activations activations;
  private final List<Part> parts = new ArrayList<>();
  private @Nullable Run reporting; // hears of each layer
  private final BitSet allowed; // ids that the device may choose
  private final Optional<AttentionPlan> stepAttention;
  private @Nullable DeviceDecoder decoder; // once it is needed

  /**
   * @param promptRows most rows of a pass that are not the only one of their sequence
   * @param allowed ids that may be chosen
   * @param stepAttention what runs that are decoded on the device keep of each step
   */
  Passes(
      Transformer model,
      Workspace workspace,
      int promptRows,
      BitSet allowed,
      Optional<AttentionPlan> stepAttention) {
    this.allowed = allowed;
    this.stepAttention = stepAttention;
    this.model = model;
    this.workspace = workspace;
    this.promptRows = promptRows;
    activations = workspace.activations();
    row = new float[model.config().vocabSize()];
  }

  KvCache kv() {
    return workspace.kv();
  }

  /**
   * Whether a device chooses a run's tokens, after the first. The host does where the choice takes
   * what the device does not bring along: how often a token was written, which may not be chosen
   * yet, what heads make of a new one.
   */
  private boolean isOnDevice(Run run) {
    return model.ops().hasSteps()
        && run.promptRead()
        && run.tokens > 0
        && !run.request.sampling.countsTokens()
        && run.valueNorms() == null
        && run.request.minTokens == 0;
  }

  /** The pieces of the next pass of some runs: as many rows as it takes. */
  List<Piece> plan(List<Run> runs) {
    List<Piece> pieces = new ArrayList<>();
    if (model.ops().mixesRuns()) {
      plan(runs, pieces);
    } else {
      for (Run run : runs) {
        run.sequences.stream()
            .filter(sequence -> sequence.slot >= 0 && sequence.starts)
            .forEach(sequence -> pieces.add(new Piece(sequence, 0)));
        if (isOnDevice(run)) {
          run.sequences.forEach(sequence -> step(sequence, pieces));
        } else {
          plan(List.of(run), pieces);
        }
      }
    }
    return pieces;
  }

  /** A step, and before it what it takes to have all but the newest token in the cache. */
  private void step(Sequence sequence, List<Piece> pieces) {
    if (sequence.slot < 0 || sequence.over || sequence.due || sequence.starts) {
      return;
    }
    if (sequence.sample.length() == sequence.run.prompt.length) { // no slot has the prompt any more
      pieces.add(new Piece(sequence, unread(sequence)));
      return;
    }
    if (slideIfFull(sequence)) {
      sequence.writing = null;
    }
    if (unread(sequence) > 1) {
      pieces.add(new Piece(sequence, unread(sequence) - 1));
    }
    pieces.add(new Piece(sequence, 0));
  }

  private void plan(List<Run> runs, List<Piece> pieces) {
    int single = 0;
    for (Run run : runs) {
      for (Sequence sequence : run.sequences) {
        if (sequence.slot >= 0) {
          boolean _ = slideIfFull(sequence);
          single += unread(sequence) == 1 ? 1 : 0;
        }
      }
    }
    int room = Math.min(promptRows, workspace.activations().x().rows() - single);
    for (Run run : runs) {
      for (Sequence sequence : run.sequences) {
        int rows = sequence.slot < 0 ? 0 : unread(sequence);
        if (rows > 1) {
          rows = Math.min(rows, room);
          room -= rows;
        }
        if (rows > 0) {
          pieces.add(new Piece(sequence, rows));
        }
      }
    }
  }

  private int unread(Sequence sequence) {
    return sequence.unread(kv().length(sequence.slot));
  }

  /** In a full context, forgets the older half; the rest is read anew from position 0. */
  private boolean slideIfFull(Sequence sequence) {
    boolean slides =
        kv().length(sequence.slot) == model.config().nPositions() && unread(sequence) > 0;
    if (slides) {
      int keep = Math.max(1, model.config().nPositions() / 2);
      sequence.dropped = sequence.sample.length() - 1 - keep;
      kv().truncate(sequence.slot, 0);
    }
    return slides;
  }

  /**
   * Reads the pieces, and brings their runs logits, scores of the prompt and attention.
   *
   * @param alone the run that all pieces are of, if this is its own thread: its listener hears of
   *     each layer of the prompt
   */
  void run(List<Piece> pieces, @Nullable Run alone) {
    if (model.ops().mixesRuns()) {
      pass(pieces, alone);
      return;
    }
    List<Piece> ofRun = new ArrayList<>();
    List<Sequence> stepping = new ArrayList<>();
    for (int p = 0; p < pieces.size(); p++) {
      Piece piece = pieces.get(p);
      Sequence sequence = piece.sequence;
      if (sequence.starts) {
        sequence.starts = false;
        sequence.logits = sequence.run.afterPrompt();
        sequence.due = true;
        continue;
      }
      if (piece.rows == 0) {
        stepping.add(sequence);
        continue;
      }
      ofRun.add(piece);
      Sequence next = p + 1 < pieces.size() ? pieces.get(p + 1).sequence : null;
      // a text that slid is read by itself, whatever others of its run do
      if (next == null || next.run != sequence.run || isOnDevice(sequence.run)) {
        pass(ofRun, alone);
        ofRun.clear();
      }
    }
    if (!stepping.isEmpty()) {
      decoder().bring(stepping);
    } else if (pieces.stream().anyMatch(piece -> isOnDevice(piece.sequence.run))) {
      DeviceDecoder _ = decoder(); // its memory may fail to come, but not after the first token
    }
  }

  private DeviceDecoder decoder() {
    DeviceDecoder made = decoder;
    if (made == null) {
      made = new DeviceDecoder(model, workspace, allowed, stepAttention);
      decoder = made;
    }
    return made;
  }

  private void pass(List<Piece> pieces, @Nullable Run alone) {
    fill(pieces);
    Activations a = activations;
    if (a.x().rows() != batch.rows()) {
      a = workspace.activations().rows(batch.rows());
      activations = a;
    }
    reporting = alone;
    try (Pass pass = model.begin(batch, kv(), Mask.CAUSAL)) {
      model.forward(pass, a, this::observe);
      for (Part part : parts) {
        AttentionRecorder recorder = part.run.recorder();
        if (recorder != null) {
          recorder.finish();
        }
      }
      scores(pass, pieces, a);
      if (batch.wantedRows() > 0) {
        logits(pass, pieces, a);
      }
    }
    for (Piece piece : pieces) {
      Sequence sequence = piece.sequence;
      sequence.run.reached(sequence, kv().length(sequence.slot));
    }
  }

  private void fill(List<Piece> pieces) {
    batch.clear();
    parts.clear();
    int first = 0;
    for (int p = 0; p < pieces.size(); p++) {
      Piece piece = pieces.get(p);
      Sequence sequence = piece.sequence;
      int position = kv().length(sequence.slot);
      int last = sequence.unread(position) - 1;
      for (int i = 0; i < piece.rows; i++, position++) {
        batch.add(
            sequence.sample.id(sequence.dropped + position),
            position,
            sequence.slot,
            i == last && sequence.run.wantsLogits(sequence));
      }
      if (p + 1 == pieces.size() || pieces.get(p + 1).sequence.run != sequence.run) {
        parts.add(new Part(sequence.run, first, batch.rows() - first));
        first = batch.rows();
      }
    }
  }

  private void observe(Attention attention) {
    for (Part part : parts) {
      AttentionRecorder recorder = part.run.recorder();
      if (recorder != null) {
        recorder.observe(attention, part.first, part.rows);
      }
    }
    if (reporting != null) {
      reporting.reading(batch.rows(), attention.layer() + 1);
    }
  }

  /** The scores of a prompt's tokens, from the logits of the rows before them. */
  private void scores(Pass pass, List<Piece> pieces, Activations a) {
    Tensor logits = workspace.logits();
    int at = 0;
    for (Piece piece : pieces) {
      Run run = piece.sequence.run;
      int place = piece.sequence.dropped + batch.position(at);
      int rows = run.rowsToScore(piece.sequence, place, piece.rows);
      int most = Math.min(LOGIT_ROWS, logits.rows());
      for (int first = 0; first < rows; first += most) {
        int count = Math.min(most, rows - first);
        model.logits(pass, a, at + first, logits.rows(0, count));
        for (int i = 0; i < count; i++) {
          model.ops().read(logits, i, row, row.length);
          run.notePrompt(row);
        }
      }
      at += piece.rows;
    }
  }

  private void logits(Pass pass, List<Piece> pieces, Activations a) {
    Tensor logits = workspace.logits().rows(0, batch.wantedRows());
    model.logits(pass, a, logits);
    int at = 0;
    int next = 0;
    for (Piece piece : pieces) {
      at += piece.rows;
      if (batch.wantsLogits(at - 1)) {
        Sequence sequence = piece.sequence;
        float[] into = sequence.room(row.length);
        model.ops().read(logits, next++, into, row.length);
        sequence.due = true;
        if (!model.ops().mixesRuns() && sequence.sample.length() == sequence.run.prompt.length) {
          sequence.run.keepAfterPrompt(into);
        }
      }
    }
  }

  @Override
  public void close() {
    if (decoder != null) {
      decoder.close();
    }
    workspace.close();
  }
}
