package dev.loupe.cli;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cli.options.Home;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.terminal.CompileProgress;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.OpeningBar;
import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.selftest.FirstContact;
import dev.loupe.cuda.selftest.KernelVerdicts;
import dev.loupe.export.TerminalText;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe doctor}: what was found, what is missing and how to get it. */
@Command(
    name = "doctor",
    description = "Check this machine and the demo model.",
    optionListHeading = "%n")
final class DoctorCommand implements Callable<Integer> {
  @ParentCommand LoupeCommand parent;

  @Option(names = "--retest", description = "Test the kernels again on each card.")
  boolean retest;

  @Override
  public Integer call() {
    Runtime runtime = Runtime.getRuntime();
    line("loupe", new LoupeCommand.Version().getVersion()[0]);
    line(
        "system",
        "%s %s, %s"
            .formatted(
                System.getProperty("os.name"),
                System.getProperty("os.version"),
                System.getProperty("os.arch")));
    line("processors", "%d usable".formatted(runtime.availableProcessors()));
    line("java heap", "up to %d MB".formatted(runtime.maxMemory() >> 20));
    boolean vectors = ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent();
    line(
        "vectors",
        vectors
            ? "Vector API present"
            : "missing: plain loops are used; start Java with --add-modules jdk.incubator.vector");
    boolean gpus = gpus();
    boolean model = model();
    return model ? gpus ? 0 : ExitCode.FAILED : ExitCode.BAD_INPUT;
  }

  /** What there is of NVIDIA's; true if the cards that can be used compute rightly. */
  private boolean gpus() {
    CompileProgress.show(parent.terminal());
    CudaDriver driver = CudaDriver.find();
    line("nvidia driver", driver.summary());
    int usable = 0;
    boolean right = true;
    for (int i = 0; i < driver.cards().size(); i++) {
      try {
        KernelVerdicts verdicts = verdicts(i); // first: a card may serve one process at a time
        try (Gpu gpu = Gpu.open(i)) {
          card(i, gpu);
        }
        for (String family : verdicts.families()) {
          line("  " + family, verdicts.summary(family));
        }
        verdicts.notes().forEach(note -> line("  note", note));
        right &= verdicts.kernelsAreRight();
        usable++;
      } catch (GpuException e) {
        line("gpu " + i, "cannot be used: " + e.getMessage());
      }
    }
    if (usable > 0 && Home.demoModel().isPresent()) {
      right &= gpuAgrees(Home.demoModel().get());
    }
    return right;
  }

  private KernelVerdicts verdicts(int device) {
    try (OpeningBar bar = new OpeningBar(parent.terminal(), true)) {
      return retest ? FirstContact.anew(device, bar) : FirstContact.of(device, bar);
    }
  }

  private void card(int device, Gpu gpu) {
    line(
        "gpu " + device,
        "%s, compute capability %d.%d, %d MB free of %d"
            .formatted(
                gpu.name(),
                gpu.computeCapability() / 10,
                gpu.computeCapability() % 10,
                gpu.freeBytes() >> 20,
                gpu.totalBytes() >> 20));
    line("  kernels", gpu.images());
    line("  cublas", cublas(gpu));
  }

  private static String cublas(Gpu gpu) {
    try {
      Optional<Cublas> cublas = Cublas.open(gpu);
      if (cublas.isEmpty()) {
        return "not found, nor needed (%s)".formatted(Cublas.searched());
      }
      try (Cublas found = cublas.get()) {
        return "version %d".formatted(found.version());
      }
    } catch (GpuException e) {
      return "does not work, and is not needed: " + e.getMessage();
    }
  }

  /** Runs the bundled model on the GPU in each precision and compares with the CPU. */
  private boolean gpuAgrees(Path demo) {
    GenerateRequest request =
        GenerateRequest.text("But soft, what light through yonder window breaks?")
            .tokens(8)
            .sampling(Sampling.greedy())
            .logprobs(0)
            .attention(AttentionSelection.all());
    boolean agrees = true;
    try (Loupe cpu = Loupe.open(demo, Options.defaults().backend(Backend.CPU))) {
      Generation expected = cpu.run(request).getFirst();
      for (Precision precision : Precision.values()) {
        String what = "gpu in " + precision.name().toLowerCase(Locale.ROOT);
        try (Loupe gpu =
            Loupe.open(demo, Options.defaults().backend(Backend.CUDA).precision(precision))) {
          Generation actual = gpu.run(request).getFirst();
          double logprobs = logprobDifference(expected, actual);
          double maps = mapDifference(expected, actual);
          boolean close = logprobs <= tolerance(precision) && maps <= tolerance(precision);
          agrees &= close;
          line(
              what,
              String.format(
                  Locale.ROOT,
                  "%s: logprobs within %.1e of the CPU's, attention within %.1e",
                  close ? "works" : "WRONG",
                  logprobs,
                  maps));
          gpu.fastestKernels().forEach(fastest -> line("  fastest", fastest));
        } catch (BackendException | GpuException | CheckpointException e) {
          line(what, "fails: " + e.getMessage());
          agrees = false;
        }
      }
    } catch (CheckpointException e) {
      return true; // said elsewhere
    }
    return agrees;
  }

  /** What rounding weights and activations so far may change in a model of six layers. */
  private static double tolerance(Precision precision) {
    return switch (precision) {
      case F32 -> 2e-4;
      case F16 -> 0.05;
      case BF16, INT8 -> 0.3;
    };
  }

  /** Over the prompt's tokens: those that are written may part after a near tie. */
  private static double logprobDifference(Generation a, Generation b) {
    double worst = 0;
    for (int i = 1; i < a.promptLength(); i++) {
      double d = Math.abs(a.tokens().get(i).logprob() - b.tokens().get(i).logprob());
      worst = d <= worst ? worst : d; // a NaN stays
    }
    return worst;
  }

  private static double mapDifference(Generation a, Generation b) {
    double worst = 0;
    AttentionMaps maps = a.attention();
    for (int layer : maps.layers()) {
      for (int head : maps.heads()) {
        for (int query = 0; query < a.promptLength(); query++) {
          float[] one = maps.row(layer, head, query);
          float[] other = b.attention().row(layer, head, query);
          for (int key = 0; key <= query; key++) {
            double d = Math.abs(one[key] - other[key]);
            worst = d <= worst ? worst : d;
          }
        }
      }
    }
    return worst;
  }

  /** Runs the bundled model once: weights, tokenizer with its native library, and the kernels. */
  private boolean model() {
    Optional<Path> demo = Home.demoModel();
    if (demo.isEmpty()) {
      line("demo model", "missing: name a model with -m DIR");
      return true;
    }
    try (Loupe loupe = Loupe.open(demo.get(), Options.defaults())) {
      Generation run =
          loupe
              .run(GenerateRequest.text("ROMEO:").tokens(5).sampling(Sampling.greedy()))
              .getFirst();
      boolean right = run.text().equals("\nWhat,");
      line("backend", loupe.info().device());
      line(
          "demo model",
          String.format(
              Locale.ROOT,
              "%s, opened in %.0f ms",
              right
                  ? "works"
                  : "WRONG: ROMEO: should go on with \"What,\", not with \"%s\""
                      .formatted(run.text().strip()),
              loupe.info().loadMs()));
      return right;
    } catch (Exception e) {
      line("demo model", "fails: " + e.getMessage());
      return false;
    }
  }

  private void line(String what, String found) {
    parent.terminal().print("%-18s %s%n".formatted(what, TerminalText.sentence(found)));
  }
}
