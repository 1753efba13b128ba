package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.model.Workspace;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Brings sequences their next tokens by steps that a device carries out ahead of the host.
 *
 * <p>The device goes on with the same sequences until another one comes, or one of them has ended
 * or has no room left. Then the host takes what is under way, and says who takes part from there
 * on. Tokens that a sequence did not ask for yet are kept until it does. For the leader of a pass.
 */
final class DeviceDecoder implements AutoCloseable {
  /** Tokens that are kept for a sequence before the steps leave it out. */
  private static final int MOST_KEPT = 16;

  private static final int NONE = -1;

  /**
   * What a step chose for a sequence.
   *
   * @param id -1 if the logits were not finite
   */
  @SuppressWarnings("ArrayRecordComponent") // not compared, and no one changes it
  record Chosen(int id, boolean isFinite, float @Nullable [] logits) {}

  /** A sequence on the device, from its slot to its end or to where its cache is filled anew. */
  static final class Writing {
    private final Sequence sequence;
    private final int slot;
    private final BitSet seen;
    private final Deque<Chosen> ahead = new ArrayDeque<>(); // the host's own text lacks them
    private int known; // tokens of the text, those ahead among them
    private int newest; // id of the last of them

    private Writing(Sequence sequence) {
      this.sequence = sequence;
      slot = sequence.slot;
      seen = (BitSet) sequence.sample.seen.clone();
      known = sequence.sample.length();
      newest = sequence.sample.lastId();
    }

    /** Whether its sequence has neither left its slot nor been read anew. */
    private boolean goesOn() {
      return sequence.writing == this;
    }
  }

  private final KvCache kv;
  private final int positions;
  private final int vocabulary;
  private final Steps steps;
  private List<Writing> set = List.of(); // row r of a step is that of the r-th

  /**
   * @param allowed ids that may be chosen
   * @param attention what is kept of steps, if anything
   */
  DeviceDecoder(
      Transformer model, Workspace workspace, BitSet allowed, Optional<AttentionPlan> attention) {
    kv = workspace.kv();
    positions = Math.min(model.config().nPositions(), kv.capacity());
    vocabulary = model.config().vocabSize();
    Activations a = Activations.forSteps(workspace.arena(), model.config(), kv.sequences());
    StepPlan.Step step =
        (pass, hook) -> {
          Activations some = a.rows(pass.batch().rows());
          model.forward(pass, some, hook);
          model.logits(pass, some, 0, workspace.logits().rows(0, pass.batch().rows()));
        };
    steps = model.ops().steps(new StepPlan(step, kv, workspace.logits(), allowed, attention));
  }

  /** Brings each of these sequences, which are all in a slot, its next token. */
  void bring(List<Sequence> wanted) {
    for (Sequence sequence : wanted) {
      if (sequence.writing == null) {
        sequence.writing = new Writing(sequence);
      }
    }
    if (!serves(wanted)) {
      while (steps.underWay() > 0) {
        take();
      }
      set(members(wanted));
    }
    if (!set.isEmpty()) {
      steps.start(set.stream().mapToInt(this::room).min().orElseThrow());
    }
    while (wanted.stream().anyMatch(sequence -> ahead(sequence).isEmpty())) {
      take();
    }
    for (Sequence sequence : wanted) {
      sequence.chosen = ahead(sequence).removeFirst();
      sequence.due = true;
    }
  }

  private static Deque<Chosen> ahead(Sequence sequence) {
    Writing writing = sequence.writing;
    if (writing == null) {
      throw new IllegalStateException("a sequence that is not on the device");
    }
    return writing.ahead;
  }

  /** Whether the steps can go on as they are. */
  private boolean serves(List<Sequence> wanted) {
    return set.stream().allMatch(this::mayStay)
        && wanted.stream().allMatch(each -> !ahead(each).isEmpty() || set.contains(each.writing));
  }

  /**
   * Where attention is kept, all rows stay to the end: what a step leaves of it is taken in order
   * with its tokens, and not before.
   */
  private boolean mayStay(Writing writing) {
    return writing.goesOn()
        ? room(writing) > 0 && writing.ahead.size() < MOST_KEPT
        : writing.sequence.run.recorder() != null && kv.length(writing.slot) < positions;
  }

  private List<Writing> members(List<Sequence> wanted) {
    List<Writing> members = new ArrayList<>();
    for (Writing writing : set) {
      if (writing.goesOn() && mayStay(writing)) {
        members.add(writing);
      }
    }
    for (Sequence sequence : wanted) {
      Writing writing = sequence.writing;
      if (writing != null && writing.ahead.isEmpty() && !members.contains(writing)) {
        members.add(writing);
      }
    }
    return members;
  }

  /** How many more steps it may be in, those that are under way among them. */
  private int room(Writing writing) {
    Run run = writing.sequence.run;
    int toWrite = run.longest() - writing.known + (run.recorder() == null ? 0 : 1);
    return Math.min(toWrite, positions - (writing.known - 1 - writing.sequence.dropped));
  }

  private void set(List<Writing> members) {
    set = members;
    if (!members.isEmpty()) {
      steps.set(
          members.stream().map(DeviceDecoder::row).toList(),
          members.stream().anyMatch(DeviceDecoder::isScored));
    }
  }

  private static Steps.Row row(Writing writing) {
    Sequence sequence = writing.sequence;
    return new Steps.Row(
        writing.slot,
        writing.newest,
        writing.known,
        sequence.sample.drawnAs(),
        sequence.run.request.sampling,
        writing.seen);
  }

  private static boolean isScored(Writing writing) {
    return writing.sequence.run.request.logprobs >= 0;
  }

  /** Takes the result of a step. */
  private void take() {
    steps.take();
    for (int r = 0; r < set.size(); r++) {
      Writing writing = set.get(r);
      if (!writing.goesOn()) {
        continue;
      }
      AttentionRecorder recorder = writing.sequence.run.recorder();
      if (recorder != null) {
        int position = writing.known - 1 - writing.sequence.dropped;
        recorder.observe(steps, r, writing.slot, position);
        writing.sequence.recorded = writing.known;
      }
      float[] logits = null;
      if (isScored(writing)) {
        logits = new float[vocabulary];
        steps.logits(r, logits);
      }
      boolean isFinite = steps.isFinite(r);
      int id = isFinite ? steps.id(r) : NONE;
      writing.ahead.add(new Chosen(id, isFinite, logits));
      writing.newest = id;
      if (isFinite) {
        writing.seen.set(id);
      }
      writing.known++;
    }
  }

  @Override
  public void close() {
    steps.close();
  }
}
