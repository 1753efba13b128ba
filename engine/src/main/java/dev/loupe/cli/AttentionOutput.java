package dev.loupe.cli;

import dev.loupe.Generation;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.ColourScale;
import dev.loupe.export.ExportOptions;
import dev.loupe.weights.AtomicFile;
import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Which attention to keep, and the files that it goes to. */
final class AttentionOutput implements AutoCloseable {
  @Option(
      names = "--attention",
      paramLabel = "FILE",
      description = "Write the maps: npz, json, csv, png or html, by the ending; may be repeated.")
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

  @Option(
      names = "--scores",
      description = "The scores before the softmax too, in all but pictures.")
  boolean scores;

  @Option(names = "--f16-maps", description = "Half precision in NPZ files.")
  boolean f16;

  @Option(
      names = "--linear-colour",
      description = "Colour by weight, not its square root, in PNG and HTML files.")
  boolean linear;

  private final List<AtomicFile> open = new ArrayList<>();

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
    if (layers != null && !printed) {
      need(formats, "--layers", EnumSet.allOf(AttentionFormat.class));
    }
    if (heads != null && !printed) {
      need(formats, "--heads", EnumSet.allOf(AttentionFormat.class));
    }
    if (scores) {
      need(formats, "--scores", EnumSet.complementOf(EnumSet.of(AttentionFormat.PNG)));
    }
    if (f16) {
      need(formats, "--f16-maps", EnumSet.of(AttentionFormat.NPZ));
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

  /** Whether a .json file is among them. */
  boolean writesJson() {
    return files.stream().anyMatch(file -> AttentionFormat.of(file) == AttentionFormat.JSON);
  }

  /**
   * Starts the files, so that a folder that is missing shows before the work and not after it.
   *
   * @param samples with several, each has files of its own, numbered before the ending
   * @throws IOException if one can't be written; the message says which and why
   */
  void open(int samples) throws IOException {
    for (int sample = 0; sample < samples; sample++) {
      for (Path file : namesFor(sample, samples)) {
        open.add(AtomicFile.create(file));
      }
    }
  }

  /** The files of one sample, in the order of {@link #files}. */
  private List<Path> namesFor(int sample, int samples) {
    return samples == 1 ? files : files.stream().map(file -> numbered(file, sample + 1)).toList();
  }

  private static Path numbered(Path file, int number) {
    String name = file.getFileName().toString();
    int dot = name.lastIndexOf('.');
    return file.resolveSibling(name.substring(0, dot) + "-" + number + name.substring(dot));
  }

  /** For the JSON object of a sample, which names one. */
  Optional<String> firstFile(int sample, int samples) {
    return namesFor(sample, samples).stream().findFirst().map(Path::toString);
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
    for (int i = 0; i < open.size(); i++) {
      int sample = i / files.size();
      Path file = namesFor(sample, runs.size()).get(i % files.size());
      try {
        write(runs.get(sample), file, open.get(i));
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

  private void write(Generation run, Path file, AtomicFile to) throws IOException {
    ColourScale colour = linear ? ColourScale.LINEAR : ColourScale.SQUARE_ROOT;
    try {
      AttentionFormat.of(file).write(run, new ExportOptions(f16, colour), to.path());
    } catch (IOException e) {
      String reason = e instanceof FileSystemException known ? known.getReason() : e.getMessage();
      throw new IOException("%s can't be written: %s".formatted(file, reason), e);
    }
    to.commit();
  }

  /** Says which files now hold what. */
  void announce(Terminal terminal, List<Generation> runs) {
    for (int sample = 0; sample < runs.size() && !files.isEmpty(); sample++) {
      AttentionMaps maps = runs.get(sample).attention();
      terminal.say(
          "[attention of %s, layers %s, heads %s: %s]"
              .formatted(
                  RunPrinter.tokens(maps.tokens()),
                  ranges(maps.layers()),
                  ranges(maps.heads()),
                  namesFor(sample, runs.size()).stream()
                      .map(Path::toString)
                      .collect(Collectors.joining(", "))));
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
