package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.ReadoutExport;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.interpret.Readout;
import dev.loupe.model.Interventions;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.io.FileFault;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** The files that logits and the residual stream of a run go to. */
final class ReadoutOutput implements AutoCloseable {
  /** A file to write, of one sample. */
  private record Output(int sample, Path named, Exporter exporter, AtomicFile file) {}

  @FunctionalInterface
  private interface Exporter {
    void write(Generation run, Readout readout, int[] rows, Path file) throws IOException;
  }

  @Option(
      names = "--logits",
      paramLabel = "FILE",
      description = "Write the logits after each token, [T, V]: npz.")
  @Nullable Path logits;

  @Option(
      names = "--hidden",
      paramLabel = "FILE",
      description =
          "Write the residual stream after the embedding and after each block, [L + 1, T, C], and"
              + " after the last layer norm: npz.")
  @Nullable Path hidden;

  @Option(
      names = "--rows",
      paramLabel = "0,5-9",
      description = "In --logits and --hidden, only these tokens, counted from 0 (default: all).")
  @Nullable String rows;

  private final List<Output> open = new ArrayList<>();

  /**
   * Refuses wishes that make no sense.
   *
   * @param others files that something else is written to
   * @throws IllegalArgumentException if --rows lacks a file, or a file has another ending than npz
   *     or is written twice
   */
  void check(List<Path> others) {
    if (rows != null && !writes()) {
      throw new IllegalArgumentException("--rows is for --logits and --hidden: add one of them");
    }
    if (rows != null) {
      int[] _ = AttentionOutput.numbers("--rows", rows);
    }
    check("--logits", logits, others);
    check("--hidden", hidden, others);
    if (logits != null && hidden != null && same(logits, hidden)) {
      throw new IllegalArgumentException(
          "--logits and --hidden both name %s: give two files".formatted(logits));
    }
  }

  private static void check(String option, @Nullable Path file, List<Path> others) {
    if (file == null) {
      return;
    }
    if (!file.toString().toLowerCase(Locale.ROOT).endsWith(".npz")) {
      throw new IllegalArgumentException(
          "%s %s: the file is a numpy archive, with the ending .npz".formatted(option, file));
    }
    if (others.stream().anyMatch(other -> same(other, file))) {
      throw new IllegalArgumentException(
          "%s %s: attention goes to that file, give another".formatted(option, file));
    }
  }

  private static boolean same(Path a, Path b) {
    return a.toAbsolutePath().normalize().equals(b.toAbsolutePath().normalize());
  }

  /** Whether any file is to be written. */
  boolean writes() {
    return logits != null || hidden != null;
  }

  /**
   * Starts the files, so that a folder that is missing shows before the work and not after it.
   *
   * @param samples with several, each has files of its own, numbered before the ending
   * @throws IOException if one can't be written; the message says which and why
   */
  void open(int samples) throws IOException {
    for (int sample = 0; sample < samples; sample++) {
      open(sample, samples, hidden, ReadoutExport::hidden);
      open(sample, samples, logits, ReadoutExport::logits);
    }
  }

  private void open(int sample, int samples, @Nullable Path file, Exporter exporter)
      throws IOException {
    if (file != null) {
      Path named = samples == 1 ? file : AttentionOutput.numbered(file, sample + 1);
      open.add(new Output(sample, named, exporter, AtomicFile.create(named)));
    }
  }

  /**
   * Reads each run's text once more and writes its files.
   *
   * @throws IOException if a file can't be written; the message says which and why
   * @throws IllegalArgumentException if a run has not all the rows that were chosen
   */
  void write(Loupe loupe, List<Generation> runs, Interventions interventions) throws IOException {
    for (Generation run : runs) {
      List<Output> outputs = open.stream().filter(o -> o.sample() == run.sample()).toList();
      if (outputs.isEmpty()) {
        return;
      }
      Prompt text =
          Prompt.ids(run.tokens().stream().mapToInt(Token::id).toArray())
              .length(run.promptLength());
      ReadRequest request = ReadRequest.of(text).interventions(interventions);
      try (Readout readout = loupe.readout(request)) {
        int[] chosen = chosen(readout);
        for (Output output : outputs) {
          write(run, readout, chosen, output);
          loupe.requireUnchanged();
          output.file().commit();
        }
      }
    }
  }

  private int[] chosen(Readout readout) {
    if (rows == null) {
      return readout.all();
    }
    int[] chosen =
        Arrays.stream(AttentionOutput.numbers("--rows", rows)).sorted().distinct().toArray();
    int last = chosen[chosen.length - 1];
    if (last >= readout.length()) {
      throw new IllegalArgumentException(
          "--rows %s: there is no token %d, the text has tokens 0..%d"
              .formatted(rows, last, readout.length() - 1));
    }
    return chosen;
  }

  private static void write(Generation run, Readout readout, int[] rows, Output output)
      throws IOException {
    try {
      output.exporter().write(run, readout, rows, output.file().path());
    } catch (IOException e) {
      throw new IOException(
          "%s can't be written: %s".formatted(output.named(), FileFault.of(e)), e);
    }
  }

  /** Says which files now hold what. */
  void announce(Terminal terminal) {
    if (writes()) {
      terminal.say(
          "[%s: %s]"
              .formatted(
                  logits == null
                      ? "residual stream"
                      : hidden == null ? "logits" : "residual stream and logits",
                  open.stream().map(o -> o.named().toString()).collect(Collectors.joining(", "))));
    }
  }

  @Override
  public void close() throws IOException {
    for (Output output : open) {
      output.file().close();
    }
  }
}
