package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.config.ConfigJson;
import dev.loupe.weights.config.ConfigWriter;
import dev.loupe.weights.config.GenerationJson;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.SafetensorsReader;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A checkpoint as Hugging Face transformers wants its GPT-2: a folder with config.json,
 * model.safetensors and tokenizer.json, and the generation_config.json of a model that has one. A
 * head that repeats {@code wte} is left out.
 */
public final class Gpt2Safetensors {
  private static final String ENDING = ".safetensors";
  private static final int PIECE = 1 << 20; // elements that are rounded at a time

  private final Checkpoint checkpoint;
  private final @Nullable DType dtype;
  private final float[] piece = new float[PIECE];
  private final float[] rounded = new float[PIECE];

  private Gpt2Safetensors(Checkpoint checkpoint, @Nullable DType dtype) {
    this.checkpoint = checkpoint;
    this.dtype = dtype;
  }

  /**
   * Writes the files, in memory of one tensor.
   *
   * @param dtype of all tensors; if there is none, each keeps its own (F32 if it is quantised)
   * @param others further files by their names: those of the tokenizer
   * @param target a folder, or a new file whose name ends in {@code .safetensors}; the other files
   *     go beside it
   * @param progress hears bytes of tensor data
   * @throws CheckpointException if a weight is too large for the type
   * @throws IOException if one of the files is there already or can't be written; whatever is
   *     thrown, nothing of the new model is left
   */
  public static void write(
      Checkpoint checkpoint,
      Optional<DType> dtype,
      Map<String, byte[]> others,
      Path target,
      Progress progress)
      throws IOException {
    boolean isFile = target.toString().endsWith(ENDING);
    Path folder = isFile ? target.toAbsolutePath().getParent() : target;
    Path weights = isFile ? target : target.resolve(SafetensorsReader.FILE_NAME);
    if (folder == null) {
      throw new IOException(target + " has no folder");
    }
    if (!isFile) {
      RandomCheckpoint.refuseExisting(folder);
    }
    Path config = folder.resolve(ConfigJson.FILE_NAME);
    Map<Path, byte[]> files = new LinkedHashMap<>();
    others.forEach((name, content) -> files.put(folder.resolve(name), content));
    Optional<Path> generation = checkpoint.generationConfig();
    if (generation.isPresent()) {
      byte[] settings =
          InputFile.read(generation.get(), GenerationJson.MAX_BYTES, GenerationJson.FILE_NAME)
              .array();
      files.put(folder.resolve(GenerationJson.FILE_NAME), settings);
    }
    for (Path file : Stream.concat(Stream.of(weights, config), files.keySet().stream()).toList()) {
      if (Files.exists(file)) {
        throw new IOException(file + " exists already; give a new name or delete it");
      }
    }
    boolean isNew = !isFile && !Files.exists(folder);
    if (isNew) {
      RandomCheckpoint.createFolders(folder);
    }
    boolean whole = false;
    try {
      new Gpt2Safetensors(checkpoint, dtype.orElse(null)).write(weights, config, files, progress);
      whole = true;
    } finally {
      if (!whole && isNew) {
        Files.deleteIfExists(folder);
      }
    }
  }

  private void write(Path weights, Path config, Map<Path, byte[]> others, Progress progress)
      throws IOException {
    boolean tied = Inspection.of(checkpoint).head() != Inspection.Head.SEPARATE;
    List<StoredTensor> tensors = new ArrayList<>(checkpoint.tensors());
    tensors.removeIf(tensor -> tied && tensor.name().equals(Gpt2Layout.HEAD));
    List<SafetensorsWriter.Entry> entries =
        tensors.stream()
            .map(t -> new SafetensorsWriter.Entry(t.name(), dtypeOf(t), t.shape()))
            .toList();
    String text = ConfigWriter.text(checkpoint.config(), entries.getFirst().dtype(), tied);
    long total = entries.stream().mapToLong(SafetensorsWriter.Entry::bytes).sum();
    List<AtomicFile> small = new ArrayList<>();
    Map<Path, byte[]> contents = new LinkedHashMap<>(others);
    contents.put(config, text.getBytes(UTF_8));
    boolean whole = false;
    try (SafetensorsWriter out = SafetensorsWriter.create(weights, entries)) {
      for (Map.Entry<Path, byte[]> content : contents.entrySet()) {
        AtomicFile file = AtomicFile.create(content.getKey());
        small.add(file);
        file.stream().write(content.getValue());
      }
      for (StoredTensor tensor : tensors) {
        write(tensor, out, total, progress);
      }
      checkpoint.checkUnchanged();
      for (AtomicFile file : small) {
        file.commit();
      }
      out.commit(); // last: without the weights nobody takes the folder for a model
      whole = true;
    } finally {
      for (AtomicFile file : small) {
        file.close();
        if (!whole) {
          file.undo();
        }
      }
    }
  }

  private DType dtypeOf(StoredTensor tensor) {
    return dtype == null ? tensor.dtype() : dtype;
  }

  private void write(StoredTensor tensor, SafetensorsWriter out, long total, Progress progress)
      throws IOException {
    DType from = tensor.dtype();
    DType to = dtypeOf(tensor);
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = tensor.data(one);
      MemorySegment bytes = one.allocate((long) PIECE * to.bytes());
      for (long first = 0; first < tensor.elements(); first += PIECE) {
        int n = (int) Math.min(PIECE, tensor.elements() - first);
        if (from == to) {
          out.write(tensor.name(), data.asSlice(first * to.bytes(), (long) n * to.bytes()));
        } else {
          from.decode(data, first * from.bytes(), piece, 0, n);
          to.encode(piece, 0, n, bytes, 0);
          checkRange(tensor, to, bytes, n);
          out.write(tensor.name(), bytes.asSlice(0, (long) n * to.bytes()));
        }
        progress.report(out.dataBytes(), total);
      }
    }
  }

  /** What was finite must stay so. */
  private void checkRange(StoredTensor tensor, DType to, MemorySegment bytes, int n)
      throws CheckpointException {
    to.decode(bytes, 0, rounded, 0, n);
    for (int i = 0; i < n; i++) {
      if (Float.isFinite(piece[i]) && !Float.isFinite(rounded[i])) {
        throw new CheckpointException(
            "%s: %s holds %s, which %s can't store"
                .formatted(checkpoint.source(), tensor.name(), piece[i], to));
      }
    }
  }
}
