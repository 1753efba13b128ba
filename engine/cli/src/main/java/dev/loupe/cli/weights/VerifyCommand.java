package dev.loupe.cli.weights;

import dev.loupe.cli.options.NamedModels;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.WeightsComparison;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights verify}: whether two checkpoints are one model. */
@Command(
    name = "verify",
    description = "Compare the weights of two models, in whatever formats they are.",
    parameterListHeading = "%n",
    exitCodeListHeading = "%nExit codes:%n",
    exitCodeList = {"0:they are one model", "1:they differ", "3:one of them can't be read"},
    footerHeading = "%nExample:%n",
    footer = "  loupe weights verify gpt2 gpt2.gguf --tolerance 1e-3")
final class VerifyCommand implements Callable<Integer> {
  @ParentCommand WeightsCommand parent;

  @Parameters(index = "0", paramLabel = "A", description = "A model: a folder or its weights.")
  Path a;

  @Parameters(index = "1", paramLabel = "B", description = "Another.")
  Path b;

  @Option(
      names = "--tolerance",
      paramLabel = "X",
      description = "How far two weights may lie apart (default: 0, to the last bit of an f32).")
  double tolerance;

  @Option(names = "--all", description = "Tensors that are equal, too.")
  boolean all;

  @Option(
      names = {"-q", "--quiet"},
      description = "The closing line alone.")
  boolean quiet;

  @Override
  public Integer call() throws IOException {
    if (!(tolerance >= 0)) {
      throw new IllegalArgumentException("--tolerance is %s, not 0 or more".formatted(tolerance));
    }
    Terminal terminal = parent.terminal();
    WeightsComparison comparison = compare(new ProgressBar(terminal, !quiet, "comparing"));
    boolean same = comparison.within(tolerance);
    terminal.print((quiet ? "" : table(comparison)) + summary(comparison, same) + "\n");
    return same ? 0 : ExitCode.FAILED;
  }

  private WeightsComparison compare(ProgressBar bar) throws IOException {
    try (Checkpoint ofA = NamedModels.find(a, null).open(null);
        Checkpoint ofB = NamedModels.find(b, null).open(null)) {
      return WeightsComparison.of(ofA, ofB, bar::update);
    } finally {
      bar.clear();
    }
  }

  private String table(WeightsComparison comparison) {
    StringBuilder table = new StringBuilder();
    comparison.settings().forEach(setting -> table.append(setting).append('\n'));
    List<WeightsComparison.Difference> rows =
        comparison.tensors().stream().filter(tensor -> all || tensor.at() >= 0).toList();
    if (!rows.isEmpty()) {
      String line = "%-24s %-14s %-10s %12s %12s\n";
      table.append(line.formatted("tensor", "shape", "stored as", "largest", "at element"));
      for (WeightsComparison.Difference row : rows) {
        boolean equal = row.at() < 0;
        table.append(
            line.formatted(
                row.name(),
                row.shape(),
                row.storedAs(),
                equal ? "equal" : number(row.largest()),
                equal ? "" : row.at()));
      }
    }
    return table.toString().replaceAll(" +\n", "\n");
  }

  private String summary(WeightsComparison comparison, boolean same) {
    List<WeightsComparison.Difference> tensors = comparison.tensors();
    if (tensors.isEmpty()) {
      return "different: the models have other shapes";
    }
    long beyond = tensors.stream().filter(t -> !WeightsComparison.within(t, tolerance)).count();
    WeightsComparison.Difference worst =
        tensors.stream()
            .max(Comparator.comparingDouble(WeightsComparison.Difference::largest))
            .get();
    String largest = "%s, in %s".formatted(number(worst.largest()), worst.name());
    if (beyond > 0) {
      return "different: %d of %d tensors, by up to %s".formatted(beyond, tensors.size(), largest);
    }
    if (!same) {
      return "different: the weights are equal, but the models compute otherwise";
    }
    return worst.largest() == 0
        ? "equal: %d tensors, every bit".formatted(tensors.size())
        : "equal within %s: %d tensors, by up to %s"
            .formatted(number(tolerance), tensors.size(), largest);
  }

  private static String number(double value) {
    return Double.isInfinite(value) ? "not a number" : String.format(Locale.ROOT, "%.3g", value);
  }
}
