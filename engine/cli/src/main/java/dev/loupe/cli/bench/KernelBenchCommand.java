package dev.loupe.cli.bench;

import dev.loupe.Backend;
import dev.loupe.bench.Machine;
import dev.loupe.bench.kernel.CpuDevice;
import dev.loupe.bench.kernel.CudaDevice;
import dev.loupe.bench.kernel.Device;
import dev.loupe.bench.kernel.KernelComparison;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Operation;
import dev.loupe.bench.kernel.Shape;
import dev.loupe.bench.kernel.report.KernelReport;
import dev.loupe.cli.options.ProcessorOptions;
import dev.loupe.cli.terminal.CompileProgress;
import dev.loupe.cli.terminal.InputException;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe bench attention}, {@code linear}, ...: what each idea in a kernel is worth here. */
@Command(abbreviateSynopsis = true, sortOptions = false, optionListHeading = "%n")
public final class KernelBenchCommand implements Callable<Integer> {
  private static final int LONGEST_REPORT = 64 << 20;
  private final Operation operation;

  @ParentCommand @Nullable BenchCommand parent;

  @Option(
      names = "--shapes",
      paramLabel = "S",
      description = {
        "Sizes, as T=128..1024,H=12,D=64: a..b doubles, T=100,300 lists (default: those of GPT-2"
            + " 124M)."
      })
  @Nullable String shapes;

  @Option(
      names = "--variants",
      paramLabel = "V",
      split = ",",
      description = "Only these (default: all).")
  List<String> variants = new ArrayList<>();

  @Option(
      names = "--dtype",
      paramLabel = "T",
      split = ",",
      description = "f32, f16, bf16, int8 (default: f32; on a GPU f32,f16).")
  List<Precision> precisions = new ArrayList<>();

  @Option(
      names = "--sweep",
      paramLabel = "block",
      description = "On a GPU: instead, the variants whose block size is free, at each size.")
  @Nullable String sweep;

  @Option(
      names = "--samples",
      paramLabel = "N",
      description = "Runs of each that are timed (default: 30).")
  int samples = 30;

  @Option(
      names = "--seconds",
      paramLabel = "S",
      description =
          "What those of one may take on one shape; a slow one gets fewer, at least 5"
              + " (default: 5).")
  double seconds = 5;

  @ArgGroup(validate = false, order = 1, heading = "%nWhere:%n")
  ProcessorOptions place = new ProcessorOptions();

  @ArgGroup(validate = false, order = 2, heading = "%nResults (a table, unless asked for):%n")
  Results results = new Results();

  /** What becomes of it. */
  static final class Results {
    @Option(
        names = "--html",
        paramLabel = "FILE",
        description = "Also write a page with pictures, one file, for a browser.")
    @Nullable Path html;

    @Option(
        names = "--json",
        arity = "0..1",
        paramLabel = "FILE",
        fallbackValue = "-",
        description = "Print JSON, one line, instead of the table; with FILE, write it there.")
    @Nullable Path json;

    @Option(
        names = "--csv",
        arity = "0..1",
        paramLabel = "FILE",
        fallbackValue = "-",
        description = "Likewise CSV.")
    @Nullable Path csv;

    @Option(
        names = "--markdown",
        arity = "0..1",
        paramLabel = "FILE",
        fallbackValue = "-",
        description = "Likewise Markdown.")
    @Nullable Path markdown;

    @Option(
        names = "--against",
        paramLabel = "FILE",
        description = "Compare with the JSON of an older run.")
    @Nullable Path against;

    @Option(
        names = {"-q", "--quiet"},
        description = "No progress.")
    boolean quiet;
  }

  private KernelBenchCommand(Operation operation) {
    this.operation = operation;
  }

  /** Adds a command for each operation to {@code bench}. */
  public static void addTo(CommandLine bench) {
    for (Operation operation : Operation.values()) {
      CommandLine command = new CommandLine(new KernelBenchCommand(operation));
      String label = operation.label();
      command
          .getCommandSpec()
          .usageMessage()
          .description(
              "Compare ways to compute %s.".formatted(operation.summary()),
              "Each is held to double precision first, then all take turns with cold caches; what"
                  + " they reach is held against the best that this device gives and computes.")
          .footerHeading("%nExamples:%n")
          .footer(
              "  loupe bench %s --html report.html".formatted(label),
              "  loupe bench %s --shapes %s --json old.json".formatted(label, example(operation)),
              "  loupe bench %s --shapes %s --against old.json"
                  .formatted(label, example(operation)));
      bench.addSubcommand(label, command);
    }
  }

  private static String example(Operation operation) {
    return switch (operation) {
      case ATTENTION, MAP, DECODE_ATTENTION -> "T=128..512,H=12,D=64";
      case LINEAR -> "M=1,64,K=768,N=3072";
      case LAYERNORM, SOFTMAX, GELU -> "R=64,C=768";
    };
  }

  @Override
  public Integer call() throws IOException {
    Terminal terminal = Objects.requireNonNull(parent).terminal();
    if (!results.quiet) {
      CompileProgress.show(terminal);
    }
    KernelReport old = results.against == null ? null : older(results.against);
    KernelComparison.Settings settings = new KernelComparison.Settings(samples, seconds);
    Machine machine = Machine.here(); // before there is load
    try (ReportFiles files = new ReportFiles(results);
        Device device = device(machine);
        Interrupt interrupt = new Interrupt(terminal)) {
      Instant started = Instant.now();
      List<Measurement> measured = measure(terminal, interrupt, device, settings);
      if (measured.isEmpty()) {
        return Interrupt.exitCode(); // too early for anything to keep
      }
      KernelReport report =
          new KernelReport(
              started,
              interrupt.asked(),
              machine,
              threads(machine),
              device.backend(),
              device.name(),
              device.emulated(),
              settings,
              measured,
              old);
      files.write(report, terminal);
      return interrupt.asked() ? Interrupt.exitCode() : 0;
    }
  }

  private int threads(Machine machine) {
    return place.threads == 0 ? machine.processors() : place.threads;
  }

  private static KernelReport older(Path file) throws IOException {
    try {
      return KernelReport.parse(InputFile.read(file, LONGEST_REPORT, "a report").text());
    } catch (IllegalArgumentException e) {
      throw new InputException("%s is no JSON of loupe bench: %s".formatted(file, e.getMessage()));
    }
  }

  private Device device(Machine machine) {
    Device device = found(machine);
    if (sweep != null && (!sweep.equals("block") || device.backend().equals("cpu"))) {
      device.close();
      throw new IllegalArgumentException(
          sweep.equals("block")
              ? "--sweep block needs a GPU: a CPU has no blocks (--threads, --vector-bits)"
              : "'%s' can't be swept over: there is block".formatted(sweep));
    }
    return device;
  }

  private Device found(Machine machine) {
    boolean cuda =
        place.backend == Backend.CUDA
            || (place.backend == Backend.AUTO && !CudaDriver.find().cards().isEmpty());
    if (!cuda) {
      return new CpuDevice(threads(machine), place.vectorBits);
    }
    try {
      return CudaDevice.open(place.device);
    } catch (BackendException | GpuException e) {
      throw new BackendException("%s (--backend cpu)".formatted(e.getMessage()));
    }
  }

  private List<Measurement> measure(
      Terminal terminal, Interrupt interrupt, Device device, KernelComparison.Settings settings) {
    List<Shape> usual = device.usualShapes(operation);
    List<Shape> wanted = shapes == null ? usual : Shape.parse(operation, shapes, usual);
    List<Precision> in = precisions;
    if (in.isEmpty()) {
      in =
          device.backend().equals("cpu")
              ? List.of(Precision.F32)
              : List.of(Precision.F32, Precision.F16);
    }
    ProgressBar progress = new ProgressBar(terminal, !results.quiet, "measuring");
    try {
      return KernelComparison.run(
          device,
          sweep == null ? device::candidates : device::sweep,
          wanted,
          in,
          variants,
          settings,
          part -> {
            progress.update((long) (1000 * part), 1000);
            if (part > 0) {
              interrupt.onlyAsk(); // from here on there is something to keep
            }
            return !interrupt.asked();
          });
    } finally {
      progress.clear();
    }
  }
}
