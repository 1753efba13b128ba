package dev.loupe.cli;

import dev.loupe.Generation;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.Request;
import dev.loupe.kernels.CudaDriver;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.ParentCommand;

/** {@code loupe doctor}: what was found, what is missing and how to get it. */
@Command(
    name = "doctor",
    description = "Check this machine and the demo model.",
    optionListHeading = "%n")
final class DoctorCommand implements Callable<Integer> {
  @ParentCommand Main main;

  @Override
  public Integer call() {
    Runtime runtime = Runtime.getRuntime();
    line("loupe", new Main.Version().getVersion()[0]);
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
    gpu();
    return model() ? 0 : Main.BAD_INPUT;
  }

  private void gpu() {
    CudaDriver driver = CudaDriver.find();
    line("nvidia driver", driver.summary());
    line("cuda backend", "not in this version: the CPU does it all");
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
          loupe.run(Request.text("ROMEO:").tokens(5).sampling(Sampling.greedy())).getFirst();
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
    main.terminal().print("%-14s %s%n".formatted(what, found));
  }
}
