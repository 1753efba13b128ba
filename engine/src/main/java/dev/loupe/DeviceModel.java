package dev.loupe;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.selftest.FirstContact;
import dev.loupe.cuda.selftest.KernelVerdicts;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.generate.Scheduler;
import dev.loupe.model.Transformer;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.ops.cuda.CudaLimits;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.Progress;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/**
 * A model's weights on the device that computes: the one asked for, or a GPU where there is one
 * that can be used and else the CPU.
 *
 * @param passedOver why a GPU that is there was not taken; empty if that is not so
 * @param notes what the user should know of the GPU
 * @param slots how many of the {@link Options#slots} have room beside the model
 */
record DeviceModel(Ops ops, Transformer model, String passedOver, List<String> notes, int slots) {
  /** The tokenizer, once it is read. */
  interface TokenizerSource {
    /**
     * Waits for it.
     *
     * @throws CheckpointException if it can't be used
     */
    Tokenizer tokenizer() throws CheckpointException;
  }

  /**
   * Products of two numbers that plain loops have done before loops on vectors are compiled:
   * measured on two cores, where 200 tokens of the demo model took either as long.
   */
  private static final double SHORT = 4e8;

  /**
   * Loads a model's weights.
   *
   * @param source of the tokenizer, which a GPU's kernels are tried out with
   * @param progress hears how many layers have been loaded
   * @throws BackendException if the backend asked for can't run here
   * @throws GpuException if the GPU fails; a {@link GpuMemoryException} if it has no room for the
   *     model
   */
  static DeviceModel open(
      Options options, Checkpoint checkpoint, TokenizerSource source, Progress progress)
      throws CheckpointException {
    return switch (options.backend()) {
      case CPU -> cpu(options, checkpoint, progress, "");
      case CUDA -> cuda(options, checkpoint, source, progress);
      case AUTO -> {
        CudaDriver driver = CudaDriver.find();
        if (driver.cards().isEmpty()) {
          yield cpu(options, checkpoint, progress, driver.failure());
        }
        try {
          yield cuda(options, checkpoint, source, progress);
        } catch (BackendException | GpuException e) {
          String why = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
          yield cpu(options, checkpoint, progress, why);
        }
      }
    };
  }

  private static DeviceModel cpu(
      Options options, Checkpoint checkpoint, Progress progress, String passedOver) {
    int threads =
        options.threads() == 0 ? Runtime.getRuntime().availableProcessors() : options.threads();
    Ops ops =
        isShort(options, checkpoint.config())
            ? CpuOps.withoutVectors(threads, options.precision())
            : new CpuOps(threads, options.precision(), options.vectorBits());
    return opened(
        ops,
        options::slots,
        () -> new Transformer(checkpoint, ops, progress),
        passedOver,
        List.of());
  }

  private static boolean isShort(Options options, Gpt2Config config) {
    long width = config.nEmbd();
    long layers = config.nLayer() * width * (4 * width + 2L * config.nInner());
    double products = (double) options.expectedTokens() * (layers + config.vocabSize() * width);
    return products > 0 && products <= SHORT && options.vectorBits() == 0;
  }

  /** Closes the backend if the model does not load. */
  private static DeviceModel opened(
      Ops ops,
      IntSupplier plan,
      Supplier<Transformer> model,
      String passedOver,
      List<String> notes) {
    try {
      int slots = plan.getAsInt(); // before the model is loaded
      return new DeviceModel(ops, model.get(), passedOver, notes, slots);
    } catch (Throwable e) {
      try {
        ops.close();
      } catch (GpuException closing) {
        e.addSuppressed(closing);
      }
      throw e;
    }
  }

  private static DeviceModel cuda(
      Options options, Checkpoint checkpoint, TokenizerSource source, Progress progress)
      throws CheckpointException {
    Tokenizer tokenizer = source.tokenizer();
    Gpt2Config config = checkpoint.config();
    CudaLimits.whyNot(config)
        .ifPresent(
            why -> {
              throw new BackendException(why);
            });
    List<SessionSize> sessions = Scheduler.sizes(config, options.slots());
    CudaOps ops;
    List<String> notes = new ArrayList<>();
    try {
      KernelVerdicts verdicts = FirstContact.of(options.device(), options.firstContact());
      notes.addAll(verdicts.notes());
      ops =
          new CudaOps(
              options.device(),
              options.precision(),
              options.gemm(),
              verdicts,
              config,
              options.kernels());
      notes.addAll(ops.choice().map(VerdictChoice::warnings).orElse(List.of()));
    } catch (GpuMemoryException e) {
      throw e;
    } catch (GpuException e) {
      throw new BackendException(String.valueOf(e.getMessage()));
    }
    return opened(
        ops,
        () -> ops.plan(config, checkpoint.has("lm_head.weight"), sessions),
        () -> {
          Transformer model = new Transformer(checkpoint, ops, progress);
          try {
            ops.choice()
                .flatMap(
                    choice ->
                        new Canary(options, checkpoint, tokenizer, choice.card())
                            .check(model, choice.key()))
                .ifPresent(notes::add);
            return model;
          } catch (Throwable e) {
            model.close();
            throw e;
          }
        },
        "",
        notes);
  }

  boolean isGpu() {
    return ops instanceof CudaOps;
  }

  /** What it is called, and why it is not the GPU. */
  String name() {
    return ops.device() + (passedOver.isEmpty() ? "" : " (not the GPU: %s)".formatted(passedOver));
  }

  /** Which kernels were chosen; empty on the CPU. */
  Optional<VerdictChoice> choice() {
    return ops instanceof CudaOps cuda ? cuda.choice() : Optional.empty();
  }

  /**
   * Called when the model computed what it can't have: what follows for its kernels, to be added to
   * the sentence that says so; empty if nothing does.
   */
  String distrust() {
    return choice().map(VerdictChoice::distrust).orElse("");
  }
}
