package dev.loupe.weights;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A GPT-2 checkpoint on disk, open for reading. The weights are mapped, not loaded: opening takes
 * milliseconds at any size, and a tensor's bytes come in when they are read.
 *
 * <p>An open checkpoint is whole: every tensor that the config calls for is there, in a type that
 * can be read and in the right shape, under Hugging Face's names without the {@code transformer.}
 * prefix, matrices in the layout of {@code Conv1D}, [in, out]. Any thread may read it. After {@link
 * #close} every access to a tensor's data throws {@link IllegalStateException}.
 */
public final class Checkpoint implements AutoCloseable {
  private static final int DIGEST_CHUNK = 1 << 18;

  private final Path source;
  private final Arena arena;
  private final Gpt2Config config;
  private final List<MappedFile> files;
  private final Map<String, StoredTensor> tensors;
  private final List<String> ignored;
  private final Optional<Vocabulary> vocabulary;
  private final List<String> notes;

  private Checkpoint(
      Path source, Arena arena, CheckpointReader.Contents contents, @Nullable Activation activation)
      throws CheckpointException {
    this.source = source;
    this.arena = arena;
    this.config =
        activation == null ? contents.config() : contents.config().withActivation(activation);
    this.files = List.copyOf(contents.files());
    this.vocabulary = contents.vocabulary();
    this.notes =
        contents.notes().stream()
            .filter(note -> activation == null || !note.equals(CheckpointReader.ERF_ASSUMED))
            .toList();
    Map<String, CheckpointReader.Entry> stored = byCanonicalName(contents.tensors());
    checkLayers(stored);
    this.tensors = Collections.unmodifiableMap(needed(stored));
    this.ignored =
        contents.tensors().stream()
            .map(CheckpointReader.Entry::name)
            .filter(name -> !tensors.containsKey(Gpt2Layout.canonical(name)))
            .toList();
  }

  /**
   * Opens a model's folder, or the weights file in it, of any format that is read, or what the
   * names of TensorFlow's files begin with. What a file holds decides, not what it is called.
   *
   * @throws CheckpointException if anything is missing, damaged or doesn't fit together; the
   *     message is one sentence that names the file
   */
  public static Checkpoint open(Path source) throws CheckpointException {
    return open(source, null);
  }

  /**
   * Likewise.
   *
   * @param activation what the model is run with, whatever the checkpoint says; null for what it
   *     says
   */
  @SuppressWarnings("MustBeClosedChecker") // the checkpoint keeps the arena open
  public static Checkpoint open(Path source, @Nullable Activation activation)
      throws CheckpointException {
    Arena arena = Arena.ofShared();
    boolean opened = false;
    try {
      MappedFile file = MappedFile.open(locate(source), arena);
      CheckpointReader.Contents contents = readerOf(file).read(file, arena);
      Checkpoint checkpoint = new Checkpoint(source, arena, contents, activation);
      opened = true;
      return checkpoint;
    } finally {
      if (!opened) {
        arena.close();
      }
    }
  }

  /** Whether there is something of this path, or TensorFlow's files whose names begin so. */
  public static boolean exists(Path source) {
    return Files.exists(source) || Files.exists(Path.of(source + TensorFlowReader.INDEX));
  }

  private static Path locate(Path source) throws CheckpointException {
    List<String> names =
        CheckpointReader.FORMATS.stream().flatMap(format -> format.fileNames().stream()).toList();
    String wanted = String.join(" or ", new LinkedHashSet<>(names));
    if (!Files.exists(source)) {
      if (exists(source)) { // TensorFlow names a checkpoint by what its files' names begin with
        return Path.of(source + TensorFlowReader.INDEX);
      }
      throw new CheckpointException(
          "%s does not exist; give a folder with config.json and %s, or such a file"
              .formatted(source, wanted));
    }
    if (!Files.isDirectory(source)) {
      return source;
    }
    for (String name : CheckpointReader.fixedNames()) {
      Path file = source.resolve(name);
      if (Files.exists(file) && !Files.isDirectory(file)) { // a folder "checkpoint" holds others
        return file;
      }
    }
    for (String name : names) {
      List<Path> found = name.startsWith("*") ? filesNamed(name, source) : List.of();
      if (found.size() > 1) {
        throw new CheckpointException(
            "%s holds %s and %s; say which"
                .formatted(source, found.get(0).getFileName(), found.get(1).getFileName()));
      }
      if (!found.isEmpty()) {
        return found.getFirst();
      }
    }
    throw new CheckpointException("%s holds no %s".formatted(source, wanted));
  }

  private static List<Path> filesNamed(String pattern, Path folder) throws CheckpointException {
    List<Path> found = new ArrayList<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, pattern)) {
      for (Path file : files) {
        if (!file.endsWith(LlmCTokenizer.FILE_NAME)) { // ends as models do and is none
          found.add(file);
        }
      }
    } catch (IOException | DirectoryIteratorException e) {
      throw new CheckpointException("%s can't be listed: %s".formatted(folder, e.getMessage()), e);
    }
    found.sort(null);
    return found;
  }

  private static CheckpointReader readerOf(MappedFile file) {
    for (CheckpointReader format : CheckpointReader.FORMATS) {
      if (format.recognises(file)) {
        return format;
      }
    }
    return CheckpointReader.FORMATS.getFirst(); // says best what is wrong with the file
  }

  private static Map<String, CheckpointReader.Entry> byCanonicalName(
      List<CheckpointReader.Entry> entries) throws CheckpointException {
    Map<String, CheckpointReader.Entry> byName = new LinkedHashMap<>();
    for (CheckpointReader.Entry entry : entries) {
      String name = Gpt2Layout.canonical(entry.name());
      if (!Gpt2Layout.isBuffer(name) && byName.put(name, entry) != null) {
        throw new CheckpointException(
            "%s holds %s with and without the prefix transformer."
                .formatted(entry.file(), StrictJson.shown(name)));
      }
    }
    return byName;
  }

  /** A config that is one layer short would run, and give nonsense. */
  private void checkLayers(Map<String, CheckpointReader.Entry> stored) throws CheckpointException {
    CheckpointReader.Entry surplus = stored.get("h.%d.ln_1.weight".formatted(config.nLayer()));
    if (surplus != null) {
      throw new CheckpointException(
          "%s holds %s, but its config says n_layer %d"
              .formatted(surplus.file(), surplus.name(), config.nLayer()));
    }
  }

  private Map<String, StoredTensor> needed(Map<String, CheckpointReader.Entry> stored)
      throws CheckpointException {
    Map<String, StoredTensor> needed = new LinkedHashMap<>();
    Map<String, List<Long>> shapes = Gpt2Layout.shapes(config, stored.containsKey(Gpt2Layout.HEAD));
    for (Map.Entry<String, List<Long>> expected : shapes.entrySet()) {
      String name = expected.getKey();
      CheckpointReader.Entry entry = stored.get(name);
      if (entry == null) {
        throw missing(name, stored);
      }
      checkShape(name, entry, expected.getValue());
      needed.put(name, new StoredTensor(name, entry.shape(), dataOf(entry)));
    }
    return needed;
  }

  private CheckpointException missing(String name, Map<String, CheckpointReader.Entry> stored) {
    String hint =
        stored.isEmpty()
            ? "it holds no weights at all"
            : "what it holds starts with " + StrictJson.shown(stored.keySet().iterator().next());
    return new CheckpointException(
        "%s has no tensor %s, which its config (n_layer %d) calls for; %s"
            .formatted(
                files.isEmpty() ? source : files.getFirst().path(), name, config.nLayer(), hint));
  }

  private static void checkShape(String name, CheckpointReader.Entry entry, List<Long> expected)
      throws CheckpointException {
    List<Long> shape = entry.shape();
    if (shape.equals(expected)) {
      return;
    }
    String where = "%s: %s is %s".formatted(entry.file(), name, shape);
    if (shape.equals(expected.reversed())) {
      throw new CheckpointException(
          "%s, not %s: it looks like [out, in], stored transposed".formatted(where, expected));
    }
    boolean onlyRows =
        shape.size() == 2 && expected.size() == 2 && shape.getLast().equals(expected.getLast());
    if (onlyRows && (name.equals("wte.weight") || name.equals("wpe.weight"))) {
      String field = name.equals("wte.weight") ? "vocab_size" : "n_positions";
      throw new CheckpointException(
          "%s: %s has %d rows, but its config says %s %d"
              .formatted(entry.file(), name, shape.getFirst(), field, expected.getFirst()));
    }
    throw new CheckpointException("%s, but by its config should be %s".formatted(where, expected));
  }

  private static TensorData dataOf(CheckpointReader.Entry entry) throws CheckpointException {
    if (entry.data() == null) {
      throw new CheckpointException(
          "%s: %s is stored as %s; readable are F64, F32, F16, BF16 and ggml's Q and K types"
              .formatted(
                  entry.file(), StrictJson.shown(entry.name()), StrictJson.shown(entry.dtype())));
    }
    return entry.data();
  }

  /** The model's shape; agrees with the tensors. */
  public Gpt2Config config() {
    return config;
  }

  /** Whether the tensor is there. Only {@code lm_head.weight} may not be: then the head is tied. */
  public boolean has(String name) {
    return tensors.containsKey(name);
  }

  /**
   * A tensor of the model by its name without prefix, e.g. {@code h.0.attn.c_attn.weight}.
   *
   * @throws IllegalArgumentException if a GPT-2 of this config has no tensor of that name
   */
  public StoredTensor tensor(String name) {
    StoredTensor tensor = tensors.get(name);
    if (tensor == null) {
      throw new IllegalArgumentException("%s has no tensor %s".formatted(source, name));
    }
    return tensor;
  }

  /** The model's tensors, in the order of the forward pass. */
  public List<StoredTensor> tensors() {
    return List.copyOf(tensors.values());
  }

  /** Names of what else the files hold, as they are stored: masks, other heads. */
  public List<String> ignored() {
    return ignored;
  }

  /** The tokenizer that came with the weights, in formats that carry one. */
  public Optional<Vocabulary> vocabulary() {
    return vocabulary;
  }

  /** What the user should know: what the format leaves open and was assumed. One sentence each. */
  public List<String> notes() {
    return notes;
  }

  /** What was given to {@link #open}. */
  public Path source() {
    return source;
  }

  /** The files that hold the weights: one, or the shards in the order of their names. */
  public List<Path> files() {
    return files.stream().map(MappedFile::path).toList();
  }

  /** Bytes of the weight files. */
  public long fileBytes() {
    return files.stream().mapToLong(file -> file.bytes().byteSize()).sum();
  }

  /** Number of weights; a head that is stored counts, a tied one does not. */
  public long parameters() {
    return tensors.values().stream().mapToLong(StoredTensor::elements).sum();
  }

  /**
   * SHA-256 of the weights file in lower-case hex; of shards, over their bytes one after the other
   * in the order of their names. Reads everything, every time.
   *
   * @throws IllegalStateException if the checkpoint is closed
   */
  public String sha256() {
    return sha256(Progress.NONE);
  }

  /**
   * Likewise.
   *
   * @param progress hears bytes
   */
  public String sha256(Progress progress) {
    MessageDigest digest;
    try {
      digest = MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java runtime has SHA-256", e);
    }
    byte[] chunk = new byte[DIGEST_CHUNK];
    long done = 0;
    for (MappedFile file : files) {
      long size = file.bytes().byteSize();
      for (long at = 0; at < size; at += chunk.length) {
        int n = (int) Math.min(chunk.length, size - at);
        MemorySegment.copy(file.bytes(), at, MemorySegment.ofArray(chunk), 0, n);
        digest.update(chunk, 0, n);
        done += n;
        progress.report(done, fileBytes());
      }
    }
    return HexFormat.of().formatHex(digest.digest());
  }

  /** Unmaps the files. Waits for nobody: whoever reads a tensor then gets an exception. */
  @Override
  public void close() {
    if (arena.scope().isAlive()) {
      arena.close();
    }
  }
}
