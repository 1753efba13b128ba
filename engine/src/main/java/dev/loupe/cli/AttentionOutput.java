package dev.loupe.cli;

import dev.loupe.Generation;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.ColourScale;
import dev.loupe.export.ExportOptions;
import dev.loupe.weights.AtomicFile;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Which attention to keep, and the files that it goes to. */
final class AttentionOutput implements AutoCloseable {
  @Option(
      names = "--attention",
      paramLabel = "FILE",
      description = "Write attention maps: .npz .json .csv .png or .html; may be repeated.")
  List<Path> files = new ArrayList<>();

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

  @Option(names = "--scores", description = "Keep the scores before the softmax too.")
  boolean scores;

  @Option(names = "--f16-maps", description = "Half-precision maps in .npz files.")
  boolean f16;

  @Option(
      names = "--linear-colour",
      description = "Colour by weight, not by its square root, in .png and .html files.")
  boolean linear;

  private final List<AtomicFile> open = new ArrayList<>();

  /**
   * Starts the files, so that a folder that is missing shows before the work and not after it.
   *
   * @param samples with several, each has files of its own, numbered before the ending
   */
  void open(int samples) throws IOException {
    for (Path file : files) {
      AttentionFormat.of(file);
    }
    try {
      for (int sample = 0; sample < samples; sample++) {
        for (Path file : files) {
          open.add(AtomicFile.create(samples == 1 ? file : numbered(file, sample + 1)));
        }
      }
    } catch (IOException e) {
      throw new IllegalArgumentException(e.getMessage(), e);
    }
  }

  private static Path numbered(Path file, int number) {
    String name = file.getFileName().toString();
    int dot = name.lastIndexOf('.');
    return file.resolveSibling(name.substring(0, dot) + "-" + number + name.substring(dot));
  }

  /** For the JSON object, which names one. */
  Optional<String> firstFile() {
    return files.stream().findFirst().map(Path::toString);
  }

  AttentionSelection selection() {
    AttentionSelection selection = AttentionSelection.all();
    if (layers != null) {
      selection = selection.layers(numbers("--layers", layers));
    }
    if (heads != null) {
      selection = selection.heads(numbers("--heads", heads));
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

  void write(List<Generation> runs) throws IOException {
    ColourScale colour = linear ? ColourScale.LINEAR : ColourScale.SQUARE_ROOT;
    ExportOptions options = new ExportOptions(f16, colour);
    for (int i = 0; i < open.size(); i++) {
      AttentionFormat format = AttentionFormat.of(files.get(i % files.size()));
      format.write(runs.get(i / files.size()), options, open.get(i).path());
    }
    for (AtomicFile file : open) {
      file.commit();
    }
  }

  /** Says which files now hold what. */
  void announce(Terminal terminal, Generation run) {
    if (!files.isEmpty()) {
      AttentionMaps maps = run.attention();
      terminal.say(
          "[attention of %d tokens, layers %s, heads %s: %s]"
              .formatted(
                  maps.tokens(),
                  ranges(maps.layers()),
                  ranges(maps.heads()),
                  files.stream().map(Path::toString).collect(Collectors.joining(", "))));
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
    for (AtomicFile file : open) {
      file.close();
    }
  }
}
