package dev.loupe.cli.bench;

import dev.loupe.bench.kernel.report.KernelReport;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.weights.io.AtomicFile;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Where a report goes, in each format that was asked for. Files are begun before anything is
 * measured, so that one that can't be written is noticed then, and appear when they are whole.
 */
final class ReportFiles implements AutoCloseable {
  /** What stands for standard output. */
  private static final Path STDOUT = Path.of("-");

  private record Output(AtomicFile file, Function<KernelReport, String> format) {}

  private final List<Output> files = new ArrayList<>();
  private @Nullable Function<KernelReport, String> printed; // instead of the table

  /**
   * @throws IllegalArgumentException if several formats are to go to standard output
   * @throws IOException if a file can't be written
   */
  ReportFiles(KernelBenchCommand.Results wanted) throws IOException {
    try {
      add(wanted.html, KernelReport::html);
      add(wanted.json, report -> report.json() + "\n");
      add(wanted.csv, KernelReport::csv);
      add(wanted.markdown, KernelReport::markdown);
    } catch (IOException | IllegalArgumentException e) {
      close();
      throw e;
    }
  }

  private void add(@Nullable Path path, Function<KernelReport, String> format) throws IOException {
    if (path == null) {
      return;
    }
    if (!path.equals(STDOUT)) {
      files.add(new Output(AtomicFile.create(path), format));
      return;
    }
    if (printed != null) {
      throw new IllegalArgumentException(
          "two formats can't both go to standard output: give one of them a file");
    }
    printed = format;
  }

  void write(KernelReport report, Terminal terminal) throws IOException {
    for (Output output : files) {
      Files.writeString(output.file.path(), output.format.apply(report), StandardCharsets.UTF_8);
      output.file.commit();
    }
    terminal.print(printed == null ? report.text(terminal.columns()) : printed.apply(report));
  }

  @Override
  public void close() throws IOException {
    for (Output output : files) {
      output.file.close();
    }
  }
}
