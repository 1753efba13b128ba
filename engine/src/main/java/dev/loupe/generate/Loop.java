package dev.loupe.generate;

import dev.loupe.cuda.driver.GpuException;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.model.Workspace;
import dev.loupe.ops.Mask;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import java.util.List;
import java.util.Optional;

/** The loop of a run: prefill, then one token of each sample a pass. */
final class Loop implements AutoCloseable {
  private final OpenModel open;
  private final Transformer model;
  private final Passes passes;
  private final Turns turns;

  /**
   * @param model the open model, or it with other heads
   * @param slots sequences that can be written at once
   * @param shared whether several runs take part in it at once
   */
  Loop(OpenModel open, Transformer model, Passes passes, int slots, boolean shared) {
    this.open = open;
    this.model = model;
    this.passes = passes;
    turns = new Turns(model.ops(), passes, slots, shared);
  }

  int slots() {
    return turns.slots();
  }

  /** Positions that a sequence has room for. */
  int capacity() {
    return passes.kv().capacity();
  }

  /**
   * Reads the prompt of a run and writes its texts, on the calling thread.
   *
   * @return one generation for each sample
   */
  List<Generation> carryOut(Run run) {
    turns.enter(run);
    try {
      while (!run.promptRead()) {
        turns.takePart(run);
        if (!run.promptRead()) {
          run.take();
        }
      }
      Optional<Steps> steps = steps(run);
      if (steps.isPresent()) {
        decodeOnDevice(run, steps.get());
      } else {
        run.take();
        while (!run.ended()) {
          turns.takePart(run);
          run.take();
        }
      }
    } catch (GpuException e) {
      if (!run.breakOff()) {
        throw e; // before the first token
      }
      throw new BrokenRunException(run.results(open.info()), e);
    } finally {
      turns.leave(run);
    }
    return run.results(open.info());
  }

  /**
   * Decoding steps of a run on a device; empty where the host chooses the tokens: on a CPU, and
   * where the choice takes what the device does not bring along, such as how often a token was
   * written, which may not be chosen yet, or what heads make of a new one.
   */
  private Optional<Steps> steps(Run run) {
    GenerateRequest request = run.request;
    boolean onHost =
        run.tokens == 0
            || request.sampling.countsTokens()
            || run.valueNorms() != null
            || request.minTokens > 0;
    return onHost ? Optional.empty() : model.ops().steps(() -> plan(run, passes.workspace()));
  }

  private StepPlan plan(Run run, Workspace workspace) {
    GenerateRequest request = run.request;
    Activations a = Activations.forSteps(workspace.arena(), model.config(), request.samples);
    Tensor rows = workspace.logits().rows(0, request.samples);
    return new StepPlan(
        (batch, hook) -> {
          model.forward(batch, workspace.kv(), a, Mask.CAUSAL, hook);
          model.logits(a, 0, rows);
        },
        workspace.kv(),
        rows,
        request.sampling,
        open.tokenizer().ids(),
        run.sequences.getFirst().sample.seen,
        request.firstSample,
        run.prompt.length,
        model.config().nPositions(),
        run.tokens + (run.recorder() == null ? 0 : 1),
        request.logprobs >= 0,
        run.plan());
  }

  private void decodeOnDevice(Run run, Steps steps) {
    try (steps) {
      run.requireFinite();
      float[] row = run.request.logprobs < 0 ? null : new float[model.config().vocabSize()];
      new DeviceDecoder(run, steps, passes, model.config().nPositions(), row).decode();
    }
  }

  @Override
  public void close() {
    passes.close();
  }
}
