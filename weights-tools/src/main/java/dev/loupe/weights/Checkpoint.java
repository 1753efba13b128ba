package dev.loupe.weights;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.config.HfConfig;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.format.TensorFlowReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A GPT-2 checkpoint on disk, open for reading. The weights are mapped, not loaded: opening takes
 * milliseconds at any size, unless a head is stored that the config ties, which is compared; a
 * tensor's bytes come in when they are read.
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
  private final List<InputFile> files;
  private final Map<String, StoredTensor> tensors;
  private final List<String> ignored;
  private final Optional<Vocabulary> vocabulary;
  private final List<String> notes;
  private final Optional<HfConfig> hf;
  private final Optional<Path> adapter;

  private Checkpoint(
      Path source,
      Arena arena,
      CheckpointReader.Contents contents,
      @Nullable Activation activation,
      @Nullable Adapter adapter)
      throws CheckpointException {
    this.source = source;
    this.arena = arena;
    this.adapter = Optional.ofNullable(adapter).map(Adapter::folder);
    List<InputFile> all = new ArrayList<>(contents.files());
    if (adapter != null) {
      all.add(adapter.file());
    }
    this.files = List.copyOf(all);
    this.vocabulary = contents.vocabulary();
    this.hf = contents.hf();
    Path file = files.isEmpty() ? source : files.getFirst().path();
    ModelTensors model = new ModelTensors(file, contents.tensors());
    model.tieHead(tied());
    if (adapter != null) {
      adapter.merge(model.stored());
    }
    this.config =
        config(
            contents.config(),
            activation,
            adapter == null ? null : model.stored().get(ModelTensors.WTE));
    this.tensors = Collections.unmodifiableMap(model.needed(config));
    this.ignored =
        contents.tensors().stream()
            .map(CheckpointReader.Entry::name)
            .filter(name -> isIgnored(model.canonical(name)))
            .toList();
    List<String> said = new ArrayList<>(contents.notes());
    if (activation != null) {
      said.remove(CheckpointReader.ERF_ASSUMED);
    }
    if (adapter == null) {
      noteHead(said);
    } else {
      said.addAll(adapter.notes());
    }
    noteIgnored(model, said);
    this.notes = List.copyOf(said);
  }

  /**
   * The config with what the user and an adapter change about it.
   *
   * @param wte the table of embeddings that an adapter left, which may have gained rows; or null
   */
  private static Gpt2Config config(
      Gpt2Config base, @Nullable Activation activation, CheckpointReader.@Nullable Entry wte)
      throws CheckpointException {
    Gpt2Config config = activation == null ? base : base.withActivation(activation);
    if (wte == null || wte.shape().size() != 2 || wte.shape().getFirst() == base.vocabSize()) {
      return config;
    }
    try {
      return config.withVocabulary(Math.toIntExact(wte.shape().getFirst()));
    } catch (IllegalArgumentException | ArithmeticException e) {
      throw new CheckpointException("%s: %s".formatted(wte.file(), e.getMessage()), e);
    }
  }

  private boolean tied() {
    return hf.map(HfConfig::tied).orElse(true);
  }

  /** What a head that was tied here is not worth saying of. */
  private boolean isIgnored(String name) {
    return !tensors.containsKey(name) && !name.equals(Gpt2Layout.HEAD);
  }

  /** Where Hugging Face's config and the stored tensors say different things of the head. */
  private void noteHead(List<String> to) {
    if (hf.isEmpty()) {
      return;
    }
    if (!tied() && !has(Gpt2Layout.HEAD)) {
      to.add(
          "the config says that the head is not tied, but there is no lm_head.weight: wte.weight"
              + " serves as the head");
    } else if (tied()
        && has(Gpt2Layout.HEAD)
        && differ(tensor(Gpt2Layout.HEAD), tensor(ModelTensors.WTE))) {
      to.add(
          "the config ties the head to wte.weight, but lm_head.weight is stored with other values:"
              + " it is used, as transformers 5 does; transformers 4 uses wte.weight");
    }
  }

  private static boolean differ(StoredTensor a, StoredTensor b) {
    return a.dtype() == b.dtype() ? !a.isSameAs(b) : WeightsComparison.of(a, b, a.name()).at() >= 0;
  }

  private void noteIgnored(ModelTensors model, List<String> to) {
    List<String> others =
        ignored.stream().filter(name -> !Gpt2Layout.isBuffer(model.canonical(name))).toList();
    if (others.isEmpty()) {
      return;
    }
    String first = StrictJson.shown(others.getFirst());
    Optional<String> classifier = others.stream().filter(Gpt2Layout::isClassifier).findFirst();
    to.add(
        classifier.isPresent()
            ? "%s belongs to a classifier's head, which is not used: the model runs as a language model"
                .formatted(StrictJson.shown(classifier.get()))
            : others.size() == 1
                ? "%s is stored beside the model and not used".formatted(first)
                : "%d tensors are stored beside the model and not used, such as %s"
                    .formatted(others.size(), first));
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
  public static Checkpoint open(Path source, @Nullable Activation activation)
      throws CheckpointException {
    return open(source, activation, null);
  }

  /**
   * Likewise. The folder of a LoRA adapter opens the base that it names, if that is a path, and is
   * merged with it.
   *
   * @param adapter the folder of a LoRA adapter to merge; null for none
   */
  @SuppressWarnings("MustBeClosedChecker") // the checkpoint keeps the arena open
  public static Checkpoint open(
      Path source, @Nullable Activation activation, @Nullable Path adapter)
      throws CheckpointException {
    Path base = source;
    Path merged = adapter;
    if (adapter == null && AdapterFolder.isAdapter(source)) {
      base = AdapterFolder.base(source);
      merged = source;
    }
    Arena arena = Arena.ofShared();
    boolean opened = false;
    try {
      InputFile file = InputFile.map(Formats.locate(base), arena);
      CheckpointReader.Contents contents = Formats.readerOf(file).read(file, arena);
      Checkpoint checkpoint =
          new Checkpoint(
              base,
              arena,
              contents,
              activation,
              merged == null ? null : Adapter.open(merged, arena));
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

  /**
   * Where the end tokens of {@link #config} are from: the name of a file, or what else says so, as
   * the end of a sentence.
   */
  public String endsFrom() {
    return hf.map(HfConfig::endsFrom)
        .orElseGet(() -> String.valueOf(files.getFirst().path().getFileName()));
  }

  /** The generation_config.json beside the weights, if there is one. */
  public Optional<Path> generationConfig() {
    return hf.flatMap(HfConfig::generation);
  }

  /** The tokenizer that came with the weights, in formats that carry one. */
  public Optional<Vocabulary> vocabulary() {
    return vocabulary;
  }

  /** What the user should know: what the format leaves open and was assumed. One sentence each. */
  public List<String> notes() {
    return notes;
  }

  /** What was given to {@link #open}; of an adapter that was given so, its base. */
  public Path source() {
    return source;
  }

  /** The folder of the adapter that was merged. */
  public Optional<Path> adapter() {
    return adapter;
  }

  /** The files that hold the weights: one, or the shards in the order of their names. */
  public List<Path> files() {
    return files.stream().map(InputFile::path).toList();
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
    for (InputFile file : files) {
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

  /**
   * That no other program has written to the weights' files since they were opened. What was
   * computed from files that were is worth nothing.
   *
   * @throws CheckpointException if one has; the message names the file
   */
  public void checkUnchanged() throws CheckpointException {
    for (InputFile file : files) {
      file.checkUnchanged();
    }
  }

  /**
   * What an error of the virtual machine means. Where a mapped file is cut, reading what was behind
   * the cut gives one.
   *
   * @return that a file changed, if one did; otherwise an exception that says so much
   */
  public CheckpointException unreadable(InternalError e) {
    try {
      checkUnchanged();
    } catch (CheckpointException changed) {
      changed.addSuppressed(e);
      return changed;
    }
    return new CheckpointException(
        "%s could not be read from disk or network: %s"
            .formatted(files.isEmpty() ? source : files.getFirst().path(), e.getMessage()),
        e);
  }

  /** Whether this is what Java throws where a page of a mapped file can't be read. */
  public static boolean isUnreadablePage(InternalError e) {
    return String.valueOf(e.getMessage()).contains("unsafe memory access");
  }

  /** Unmaps the files. Waits for nobody: whoever reads a tensor then gets an exception. */
  @Override
  public void close() {
    if (arena.scope().isAlive()) {
      arena.close();
    }
  }
}
