package dev.loupe.weights;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
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
  private static final String WTE = "wte.weight";

  private static final Pattern SHARD = Pattern.compile("-[0-9]{5}-of-[0-9]{5}\\.");

  /** Files that are called as models are and are none: what trainers keep beside the weights. */
  private static final Pattern NO_MODEL =
      Pattern.compile(
          Pattern.quote(LlmCTokenizer.FILE_NAME)
              + "|(optimizer|scheduler|scaler|training_args|rng_state|random_states|adapter_model)"
              + "[^/]*|meta\\.pkl");

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
    Anchor anchor =
        Anchor.of(contents.tensors().stream().map(CheckpointReader.Entry::name).toList(), file);
    Map<String, CheckpointReader.Entry> stored = byCanonicalName(contents.tensors(), anchor);
    tieHead(stored);
    if (adapter != null) {
      adapter.merge(stored);
    }
    this.config = config(contents.config(), activation, adapter == null ? null : stored.get(WTE));
    checkLayers(stored);
    this.tensors = Collections.unmodifiableMap(needed(stored));
    this.ignored =
        contents.tensors().stream()
            .map(CheckpointReader.Entry::name)
            .filter(name -> isIgnored(anchor.canonical(name)))
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
    noteIgnored(anchor, said);
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

  /**
   * A head and wte that are one tensor in the file, under one name or both, become wte alone: torch
   * saves both names, and other programs keep either.
   */
  private void tieHead(Map<String, CheckpointReader.Entry> stored) {
    CheckpointReader.Entry head = stored.get(Gpt2Layout.HEAD);
    CheckpointReader.Entry wte = stored.get(WTE);
    if (head == null) {
      return;
    }
    if (wte == null && tied()) {
      stored.put(WTE, head);
      stored.remove(Gpt2Layout.HEAD);
    } else if (wte != null && isSame(head, wte)) {
      stored.remove(Gpt2Layout.HEAD);
    }
  }

  private boolean tied() {
    return hf.map(HfConfig::tied).orElse(true);
  }

  private static boolean isSame(CheckpointReader.Entry a, CheckpointReader.Entry b) {
    return a.data() != null
        && b.data() != null
        && a.shape().equals(b.shape())
        && a.dtype().equals(b.dtype())
        && a.data().getClass() == b.data().getClass()
        && a.data().stored().address() == b.data().stored().address()
        && a.data().stored().byteSize() == b.data().stored().byteSize();
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
    } else if (tied() && has(Gpt2Layout.HEAD) && differ(tensor(Gpt2Layout.HEAD), tensor(WTE))) {
      to.add(
          "the config ties the head to wte.weight, but lm_head.weight is stored with other values:"
              + " it is used, as transformers 5 does; transformers 4 uses wte.weight");
    }
  }

  private static boolean differ(StoredTensor a, StoredTensor b) {
    return a.dtype() == b.dtype() ? !a.isSameAs(b) : WeightsComparison.of(a, b, a.name()).at() >= 0;
  }

  private void noteIgnored(Anchor anchor, List<String> to) {
    List<String> others =
        ignored.stream().filter(name -> !Gpt2Layout.isBuffer(anchor.canonical(name))).toList();
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
    if (adapter == null && isAdapter(source)) {
      base = adapterBase(source);
      merged = source;
    }
    Arena arena = Arena.ofShared();
    boolean opened = false;
    try {
      InputFile file = InputFile.map(locate(base), arena);
      CheckpointReader.Contents contents = readerOf(file).read(file, arena);
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

  /**
   * Whether this is the folder of a LoRA adapter, which needs a base.
   *
   * @throws CheckpointException if a model's weights are there as well, so that the user has to say
   *     what to open
   */
  public static boolean isAdapter(Path source) throws CheckpointException {
    if (!Files.isDirectory(source) || !Adapter.isIn(source)) {
      return false;
    }
    for (String name : CheckpointReader.fixedNames()) {
      if (Files.isRegularFile(source.resolve(name))) {
        throw new CheckpointException(
            "%s holds a model (%s) and an adapter: give the one as the model and the other with --adapter"
                .formatted(source, name));
      }
    }
    return true;
  }

  /**
   * What an adapter calls its base: a path, or a model's name with or without {@code @REVISION}.
   */
  public static String adapterBaseName(Path adapter) throws CheckpointException {
    return AdapterConfig.read(adapter.resolve(AdapterConfig.FILE_NAME))
        .base()
        .orElseThrow(
            () ->
                new CheckpointException(
                    "%s names no base_model_name_or_path: give the base as the model, and --adapter %s"
                        .formatted(adapter.resolve(AdapterConfig.FILE_NAME), adapter)));
  }

  /**
   * The base of an adapter where it is named by its path, as it is or from the adapter's folder.
   */
  public static Optional<Path> adapterBasePath(Path adapter) throws CheckpointException {
    Optional<String> base = AdapterConfig.read(adapter.resolve(AdapterConfig.FILE_NAME)).basePath();
    try {
      if (base.isPresent()) {
        for (Path path : List.of(Path.of(base.get()), adapter.resolve(base.get()))) {
          if (exists(path) && !isAdapter(path)) {
            return Optional.of(path);
          }
        }
      }
    } catch (InvalidPathException e) {
      return Optional.empty(); // a name that can't be a path
    }
    return Optional.empty();
  }

  private static Path adapterBase(Path adapter) throws CheckpointException {
    String name = adapterBaseName(adapter);
    return adapterBasePath(adapter)
        .orElseThrow(
            () ->
                new CheckpointException(
                    "%s is an adapter of %s, which is not here: give that as the model, and --adapter %s"
                        .formatted(adapter, StrictJson.shown(name), adapter)));
  }

  /** Whether there is something of this path, or TensorFlow's files whose names begin so. */
  public static boolean exists(Path source) {
    return Files.exists(source) || Files.exists(Path.of(source + TensorFlowReader.INDEX));
  }

  private static Path locate(Path source) throws CheckpointException {
    List<String> names =
        CheckpointReader.FORMATS.stream().flatMap(format -> format.fileNames().stream()).toList();
    Set<String> known = new LinkedHashSet<>(CheckpointReader.fixedNames());
    names.stream().filter(name -> name.startsWith("*")).forEach(known::add);
    String wanted = String.join(" or ", known);
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
    for (String name : patterns(names)) {
      List<Path> found = filesNamed(name, source);
      if (found.size() > 1 && found.stream().allMatch(Checkpoint::isShard)) {
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

  private static CheckpointReader readerOf(InputFile file) {
    for (CheckpointReader format : CheckpointReader.FORMATS) {
      if (format.recognises(file)) {
        return format;
      }
    }
    return CheckpointReader.FORMATS.getFirst(); // says best what is wrong with the file
  }

  private static Map<String, CheckpointReader.Entry> byCanonicalName(
      List<CheckpointReader.Entry> entries, Anchor anchor) throws CheckpointException {
    Map<String, CheckpointReader.Entry> byName = new LinkedHashMap<>();
    for (CheckpointReader.Entry entry : entries) {
      String name = anchor.canonical(entry.name());
      if (!Gpt2Layout.isBuffer(name) && byName.put(name, entry) != null) {
        throw new CheckpointException(
            "%s holds %s with and without the prefix %s"
                .formatted(
                    entry.file(), StrictJson.shown(name), StrictJson.shown(anchor.prefix())));
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

  private CheckpointException missing(String name, Map<String, CheckpointReader.Entry> stored)
      throws CheckpointException {
    OtherModels.refuse(files.isEmpty() ? source : files.getFirst().path(), stored.keySet());
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
          "%s: %s is stored as %s; readable are F64, F32, F16, BF16 and ggml's %s"
              .formatted(
                  entry.file(),
                  StrictJson.shown(entry.name()),
                  StrictJson.shown(entry.dtype()),
                  GgmlType.blockTypes()));
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
