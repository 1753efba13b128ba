package dev.loupe.weights;

import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.format.ForeignReader;
import dev.loupe.weights.format.LlmCReader;
import dev.loupe.weights.format.LlmCTokenizer;
import dev.loupe.weights.format.SafetensorsReader;
import dev.loupe.weights.format.TensorFlowReader;
import dev.loupe.weights.ggml.GgmlReader;
import dev.loupe.weights.ggml.GgufReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.torch.PyTorchReader;
import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * The formats of checkpoints that are read, and where in a folder the file of a model is. To add a
 * format, write its reader and put it into {@link #ALL}.
 */
final class Formats {
  /** In the order in which a file's content is tried and a folder searched. */
  private static final List<CheckpointReader> ALL =
      List.of(
          new SafetensorsReader(),
          new ShardIndexReader(),
          new TensorFlowReader(),
          new GgufReader(),
          new LlmCReader(),
          new PyTorchReader(),
          new GgmlReader(),
          new ForeignReader());

  private static final Pattern SHARD = Pattern.compile("-[0-9]{5}-of-[0-9]{5}\\.");

  /** Files that are called as models are and are none: what trainers keep beside the weights. */
  private static final Pattern NO_MODEL =
      Pattern.compile(
          Pattern.quote(LlmCTokenizer.FILE_NAME)
              + "|(optimizer|scheduler|scaler|training_args|rng_state|random_states|adapter_model)"
              + "[^/]*|meta\\.pkl");

  private Formats() {}

  /** The names of all formats' files that are no patterns. */
  static List<String> fixedNames() {
    return ALL.stream()
        .flatMap(format -> format.fileNames().stream())
        .filter(name -> !name.contains("*"))
        .toList();
  }

  /**
   * The file to begin with, of what the user gave.
   *
   * @throws CheckpointException if there is none, or more than one
   */
  static Path locate(Path source) throws CheckpointException {
    List<String> names = ALL.stream().flatMap(format -> format.fileNames().stream()).toList();
    Set<String> known = new LinkedHashSet<>(fixedNames());
    names.stream().filter(name -> name.startsWith("*")).forEach(known::add);
    String wanted = String.join(" or ", known);
    if (!Files.exists(source)) {
      if (Checkpoint.exists(
          source)) { // TensorFlow names a checkpoint by what its files' names begin with
        return Path.of(source + TensorFlowReader.INDEX);
      }
      throw new CheckpointException(
          "%s does not exist; give a folder with config.json and %s, or such a file"
              .formatted(source, wanted));
    }
    if (!Files.isDirectory(source)) {
      return source;
    }
    for (String name : fixedNames()) {
      Path file = source.resolve(name);
      if (Files.exists(file) && !Files.isDirectory(file)) { // a folder "checkpoint" holds others
        return file;
      }
    }
    for (String name : patterns(names)) {
      List<Path> found = filesNamed(name, source);
      if (found.size() > 1 && found.stream().allMatch(Formats::isShard)) {
        throw new CheckpointException(
            "%s holds %s and other parts, but no index of them: copy or download it again"
                .formatted(source, found.getFirst().getFileName()));
      }
      if (found.size() > 1) {
        throw new CheckpointException(
            "%s holds %s and %s; say which"
                .formatted(source, found.get(0).getFileName(), found.get(1).getFileName()));
      }
      if (!found.isEmpty()) {
        return found.getFirst();
      }
    }
    throw new CheckpointException(
        ForeignReader.inFolder(source).orElse("%s holds no %s".formatted(source, wanted)));
  }

  /** Those with a star, an index before the shards that it names. */
  private static List<String> patterns(List<String> names) {
    return names.stream()
        .filter(name -> name.contains("*"))
        .sorted(Comparator.comparing(name -> !name.endsWith(".json")))
        .toList();
  }

  private static boolean isShard(Path file) {
    return SHARD.matcher(file.getFileName().toString()).find();
  }

  private static List<Path> filesNamed(String pattern, Path folder) throws CheckpointException {
    List<Path> found = new ArrayList<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, pattern)) {
      for (Path file : files) {
        if (!NO_MODEL.matcher(file.getFileName().toString()).matches()) {
          found.add(file);
        }
      }
    } catch (IOException | DirectoryIteratorException e) {
      throw new CheckpointException("%s can't be listed: %s".formatted(folder, e.getMessage()), e);
    }
    found.sort(null);
    return found;
  }

  /** The format of a file, by its content. */
  static CheckpointReader readerOf(InputFile file) {
    for (CheckpointReader format : ALL) {
      if (format.recognises(file)) {
        return format;
      }
    }
    return ALL.getFirst(); // says best what is wrong with the file
  }
}
