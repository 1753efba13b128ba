package dev.loupe.cli.run;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.ColourScale;
import dev.loupe.export.StatisticsFormat;
import dev.loupe.generate.Generation;
import dev.loupe.text.Count;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.io.FileFault;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Which attention to keep, and the files that it goes to. */
final class AttentionOutput implements AutoCloseable {
  /** How many of the keys that a row read most go into statistics. */
  private static final int TOP = 8;

  /** A file to write, of one sample. */
  private record Output(int sample, Path named, Exporter exporter, AtomicFile file) {}

  @FunctionalInterface
  private interface Exporter {
    void write(Generation run, Path file) throws IOException;
  }

  @Option(
      names = "--attention",
      paramLabel = "FILE",
      description = "Write the maps: npz, json, csv, png or html, by the ending; may be repeated.")
  List<Path> files = new ArrayList<>();

  @Option(
      names = "--stats",
      paramLabel = "FILE",
      description =
          "Write statistics of each row (entropy, mean distance, the keys read most) and of each"
              + " head (what it reads: see loupe heads): npz, json or csv; may be repeated. Without"
              + " --attention no map is kept.")
  List<Path> stats = new ArrayList<>();

  @Option(
      names = "--value-norms",
      description = "In --stats: also weight attention by the norm of the value that is read.")
  boolean valueNorms;

  @Option(
      names = "--rollout",
      description = "In --stats, npz or json: also attention rollout through all layers.")
  boolean rollout;

  @Option(
      names = "--layers",
      paramLabel = "0,3-5",
      description = "Only these layers, counted from 0 (default: all).")
  @Nullable String layers;

  @Option(
      names = "--heads",
      paramLabel = "1,2",
      description = "Only these heads, counted from 0 (default: all).")
  @Nullable String heads;

  @Option(
      names = "--scores",
      description = "Also write the scores before the softmax; pictures have none.")
  boolean scores;

  @Option(
      names = "--attention-dtype",
      paramLabel = "T",
      description =
          "Maps as f32, or f16: half the memory, and three digits (default: f32). Scores are f32.")
  DType dtype = DType.F32;

  @Option(
      names = "--linear-colour",
      description = "Colour by weight, not its square root, in PNG and HTML files.")
  boolean linear;

  private final List<Output> open = new ArrayList<>();

  /**
   * Refuses wishes that nothing would show.
   *
   * @param printed whether the chosen layers and heads show without a file
   * @throws IllegalArgumentException if an option lacks the file that it is about, or a file has an
   *     unknown ending
   */
  void check(boolean printed) {
    Set<AttentionFormat> formats = EnumSet.noneOf(AttentionFormat.class);
    files.forEach(file -> formats.add(AttentionFormat.of(file)));
    Set<StatisticsFormat> statistics = EnumSet.noneOf(StatisticsFormat.class);
    stats.forEach(file -> statistics.add(StatisticsFormat.of(file)));
    if (valueNorms && statistics.isEmpty()) {
      throw new IllegalArgumentException(
          "--value-norms is for statistics: add --stats FILE with one of the endings .npz .json .csv");
    }
    if (rollout
        && !statistics.contains(StatisticsFormat.NPZ)
        && !statistics.contains(StatisticsFormat.JSON)) {
      throw new IllegalArgumentException(
          "--rollout is for statistics: add --stats FILE with one of the endings .npz .json");
    }
    if (rollout && (layers != null || heads != null)) {
      throw new IllegalArgumentException(
          "--rollout goes through all layers and heads: leave out --layers and --heads");
    }
    if (layers != null && !printed && stats.isEmpty()) {
      need(formats, "--layers", EnumSet.allOf(AttentionFormat.class));
    }
    if (heads != null && !printed && stats.isEmpty()) {
      need(formats, "--heads", EnumSet.allOf(AttentionFormat.class));
    }
    if (scores) {
      need(formats, "--scores", EnumSet.complementOf(EnumSet.of(AttentionFormat.PNG)));
    }
    if (dtype != DType.F32) {
      need(formats, "--attention-dtype", EnumSet.allOf(AttentionFormat.class));
    }
    if (linear) {
      need(formats, "--linear-colour", EnumSet.of(AttentionFormat.PNG, AttentionFormat.HTML));
    }
  }

  private static void need(Set<AttentionFormat> given, String option, Set<AttentionFormat> wanted) {
    if (Collections.disjoint(given, wanted)) {
      String endings =
          wanted.stream().map(AttentionFormat::ending).collect(Collectors.joining(" "));
      throw new IllegalArgumentException(
          "%s is for maps: add --attention FILE with one of the endings %s"
              .formatted(option, endings));
    }
  }

  /** All files that are to be written. */
  List<Path> everyFile() {
    return Stream.concat(files.stream(), stats.stream()).toList();
  }

  /** Whether any file is to be written. */
  boolean writes() {
    return !files.isEmpty() || !stats.isEmpty();
  }

  /** Whether a .json file is among them. */
  boolean writesJson() {
    return files.stream().anyMatch(file -> AttentionFormat.of(file) == AttentionFormat.JSON)
        || stats.stream().anyMatch(file -> StatisticsFormat.of(file) == StatisticsFormat.JSON);
  }

  /**
   * Starts the files, so that a folder that is missing shows before the work and not after it.
   *
   * @param samples with several, each has files of its own, numbered before the ending
   * @throws IOException if one can't be written; the message says which and why
   */
  void open(int samples) throws IOException {
    ColourScale colour = linear ? ColourScale.LINEAR : ColourScale.SQUARE_ROOT;
    for (int sample = 0; sample < samples; sample++) {
      for (Path file : files) {
        AttentionFormat format = AttentionFormat.of(file);
        open(sample, samples, file, (run, to) -> format.write(run, colour, to));
      }
      for (Path file : stats) {
        open(sample, samples, file, StatisticsFormat.of(file)::write);
      }
    }
  }

  private void open(int sample, int samples, Path file, Exporter exporter) throws IOException {
    Path named = samples == 1 ? file : numbered(file, sample + 1);
    open.add(new Output(sample, named, exporter, AtomicFile.create(named)));
  }

  static Path numbered(Path file, int number) {
    String name = file.getFileName().toString();
    int dot = name.lastIndexOf('.');
    return file.resolveSibling(name.substring(0, dot) + "-" + number + name.substring(dot));
  }

  private List<String> namesOf(int sample) {
    return open.stream()
        .filter(output -> output.sample() == sample)
        .map(output -> output.named().toString())
        .toList();
  }

  /** For the JSON object of a sample, which names the first of its maps. */
  Optional<String> firstFile(int sample) {
    return files.isEmpty() ? Optional.empty() : namesOf(sample).stream().findFirst();
  }

  /**
   * What the options ask for.
   *
   * @param maps whether maps are wanted, or else statistics alone
   */
  AttentionSelection selection(boolean maps) {
    AttentionSelection selection = AttentionSelection.all().dtype(dtype);
    if (layers != null) {
      selection = selection.layers(numbers("--layers", layers));
    }
    if (heads != null) {
      selection = selection.heads(numbers("--heads", heads));
    }
    if (!stats.isEmpty()) {
      selection = maps ? selection.withStatistics(TOP) : selection.statisticsOnly(TOP);
      selection = selection.withHeadStatistics();
      selection = valueNorms ? selection.withValueNorms() : selection;
      selection = rollout ? selection.withRollout() : selection;
    }
    if (files.stream().anyMatch(file -> AttentionFormat.of(file) == AttentionFormat.HTML)) {
      selection = selection.withHeadStatistics(); // the page names what heads do
    }
    return scores ? selection.withScores() : selection;
  }

  /** Numbers and ranges, e.g. {@code 0,3-5}. */
  static int[] numbers(String option, String text) {
    List<Integer> numbers = new ArrayList<>();
    for (String part : text.split(",", -1)) {
      String[] ends = part.strip().split("-", -1);
      try {
        int first = Integer.parseInt(ends[0]);
        int last = Integer.parseInt(ends[ends.length - 1]);
        if (ends.length > 2 || last < first || last > 10_000) {
          throw new NumberFormatException();
        }
        for (int n = first; n <= last; n++) {
          numbers.add(n);
        }
      } catch (NumberFormatException e) {
        throw new IllegalArgumentException(
            "%s %s: give numbers and ranges such as 0,3-5".formatted(option, text), e);
      }
    }
    return numbers.stream().mapToInt(Integer::intValue).toArray();
  }

  /**
   * Writes the files of every run. One that can't be written does not keep the others from it: a
   * run may have taken long.
   *
   * @throws IOException if a file can't be written; the message says which and why
   * @throws IllegalArgumentException if the maps do not fit a format
   */
  void write(List<Generation> runs) throws IOException {
    IOException broken = null;
    IllegalArgumentException unfit = null;
    for (Output output : open) {
      try {
        write(runs.get(output.sample()), output);
      } catch (IOException e) {
        broken = broken == null ? e : broken;
      } catch (IllegalArgumentException e) {
        unfit = unfit == null ? e : unfit;
      }
    }
    if (broken != null) {
      throw broken;
    }
    if (unfit != null) {
      throw unfit;
    }
  }

  private static void write(Generation run, Output output) throws IOException {
    try {
      output.exporter().write(run, output.file().path());
    } catch (IOException e) {
      throw new IOException(
          "%s can't be written: %s".formatted(output.named(), FileFault.of(e)), e);
    } catch (IllegalArgumentException e) { // it would be too large
      throw new IllegalArgumentException(e.getMessage() + " (--layers, --heads)", e);
    }
    output.file().commit();
  }

  /** Says which files now hold what. */
  void announce(Terminal terminal, List<Generation> runs) {
    for (int sample = 0; sample < runs.size() && writes(); sample++) {
      Generation run = runs.get(sample);
      int[] ofLayers =
          run.maps()
              .map(AttentionMaps::layers)
              .orElseGet(() -> run.statistics().orElseThrow().layers());
      int[] ofHeads =
          run.maps()
              .map(AttentionMaps::heads)
              .orElseGet(() -> run.statistics().orElseThrow().heads());
      terminal.say(
          "[attention of %s, layers %s, heads %s: %s]"
              .formatted(
                  Count.of(run.tokens().size(), "token"),
                  ranges(ofLayers),
                  ranges(ofHeads),
                  String.join(", ", namesOf(sample))));
    }
  }

  /** The short form of ascending numbers, e.g. {@code 0,3-5}. */
  static String ranges(int[] numbers) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < numbers.length; i++) {
      int first = numbers[i];
      while (i + 1 < numbers.length && numbers[i + 1] == numbers[i] + 1) {
        i++;
      }
      text.append(text.isEmpty() ? "" : ",").append(first);
      if (numbers[i] > first) {
        text.append('-').append(numbers[i]);
      }
    }
    return text.toString();
  }

  @Override
  public void close() throws IOException {
    for (Output output : open) {
      output.file().close();
    }
  }
}
