package dev.loupe.weights;

import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.format.SafetensorsReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.tensor.TensorData;
import dev.loupe.weights.torch.PyTorchReader;
import dev.loupe.weights.torch.TorchFile;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * A LoRA adapter of Hugging Face's PEFT: a folder with adapter_config.json and
 * adapter_model.safetensors (or .bin). Of each matrix W that it changes it has A [r, in] and B
 * [out, r]; the model's is then W + B A alpha / r, or alpha / sqrt(r) where {@code use_rslora} says
 * so. Of the table of embeddings A is [r, V] and B [C, r]. Modules that were trained whole, and
 * biases, take the place of the base's.
 *
 * <p>The result is what PEFT's {@code merge_and_unload} leaves. So a change of a tied head, or of a
 * wte that the head is tied to, changes both; and a wte or head that is saved whole ends the tie.
 *
 * <p>Sources: Hu et al., arXiv 2106.09685; Kalajdzievski, "A Rank Stabilization Scaling Factor for
 * Fine-Tuning with LoRA", arXiv 2312.03732; {@code src/peft/tuners/lora} of Hugging Face PEFT.
 */
final class Adapter {
  private static final List<String> WEIGHTS =
      List.of("adapter_model.safetensors", "adapter_model.bin");
  private static final String WTE = "wte";
  private static final String HEAD = "lm_head";

  /** The module within a GPT-2, whatever stands in front of it. */
  private static final Pattern MODULE =
      Pattern.compile("(?:^|\\.)(h\\.[0-9]+\\..+|wte|wpe|ln_f|lm_head)$");

  private final AdapterConfig config;
  private final Path folder;
  private final InputFile file;
  private final List<String> notes = new ArrayList<>();
  private final Map<String, Factors> changes = new LinkedHashMap<>(); // by module
  private final Map<String, CheckpointReader.Entry> whole = new LinkedHashMap<>(); // by tensor

  private Adapter(AdapterConfig config, Path folder, InputFile file) {
    this.config = config;
    this.folder = folder;
    this.file = file;
  }

  /** The two matrices of a change. */
  private static final class Factors {
    private final String called; // the module in the base model
    private CheckpointReader.@Nullable Entry a;
    private CheckpointReader.@Nullable Entry b;
    private boolean embedding;

    Factors(String called) {
      this.called = called;
    }
  }

  /** Whether this is an adapter's folder. */
  static boolean isIn(Path folder) {
    return Files.exists(folder.resolve(AdapterConfig.FILE_NAME));
  }

  /**
   * Opens an adapter.
   *
   * @param given its folder, or a file in it
   * @throws CheckpointException if it is none, is damaged or of a kind that can't be merged
   */
  static Adapter open(Path given, Arena arena) throws CheckpointException {
    Path folder = given;
    if (Files.isRegularFile(given)) {
      folder = given.resolveSibling("");
    }
    Path json = folder.resolve(AdapterConfig.FILE_NAME);
    if (!Files.exists(json)) {
      throw new CheckpointException(
          "%s is no adapter: there is no %s".formatted(given, AdapterConfig.FILE_NAME));
    }
    AdapterConfig config = AdapterConfig.read(json);
    List<String> notes = config.check();
    Adapter adapter = new Adapter(config, folder, weights(folder, arena));
    adapter.notes.addAll(notes);
    for (CheckpointReader.Entry entry : adapter.entries()) {
      adapter.add(entry);
    }
    return adapter;
  }

  private static InputFile weights(Path folder, Arena arena) throws CheckpointException {
    for (String name : WEIGHTS) {
      if (Files.exists(folder.resolve(name))) {
        return InputFile.map(folder.resolve(name), arena);
      }
    }
    throw new CheckpointException(
        "%s holds an adapter's config and no %s".formatted(folder, String.join(" or ", WEIGHTS)));
  }

  private List<CheckpointReader.Entry> entries() throws CheckpointException {
    if (!TorchFile.recognises(file)) {
      return SafetensorsReader.entries(file);
    }
    TorchFile torch = TorchFile.open(file);
    return PyTorchReader.entries(torch, TorchFile.tensors(torch.root()));
  }

  private void add(CheckpointReader.Entry entry) throws CheckpointException {
    String name =
        entry
            .name()
            .replace(".base_layer.", ".")
            .replaceFirst("\\.modules_to_save\\.[^.]+\\.", ".");
    int lora = name.indexOf(".lora_");
    if (lora < 0) {
      int dot = name.lastIndexOf('.');
      Optional<String> module = module(dot < 0 ? name : name.substring(0, dot));
      String tensor = module.map(known -> known + name.substring(dot)).orElse(name);
      if (module.isEmpty()) {
        notes.add(
            Gpt2Layout.isClassifier(tensor)
                ? "the adapter's %s belongs to a classifier's head, which is not used"
                    .formatted(StrictJson.shown(tensor))
                : "the adapter's %s is not used".formatted(StrictJson.shown(tensor)));
      } else if (!Gpt2Layout.isBuffer(tensor) && whole.put(tensor, entry) != null) {
        throw twice(tensor);
      }
      return;
    }
    String called = name.substring(0, lora).replaceFirst("^base_model\\.model\\.", "");
    String module =
        module(called)
            .orElseThrow(
                () ->
                    new CheckpointException(
                        "%s changes %s, which a GPT-2 doesn't have"
                            .formatted(file.path(), StrictJson.shown(called))));
    String part = name.substring(lora + 1);
    Factors factors = changes.computeIfAbsent(module, m -> new Factors(called));
    boolean first = part.startsWith("lora_A") || part.startsWith("lora_embedding_A");
    boolean second = part.startsWith("lora_B") || part.startsWith("lora_embedding_B");
    if ((!first && !second) || part.endsWith(".bias")) {
      throw new CheckpointException(
          "%s holds %s for %s, which plain LoRA doesn't have; merge it with PEFT"
              .formatted(file.path(), StrictJson.shown(part), StrictJson.shown(module)));
    }
    if ((first ? factors.a : factors.b) != null) {
      throw twice(module);
    }
    factors.embedding = part.startsWith("lora_embedding");
    if (first) {
      factors.a = entry;
    } else {
      factors.b = entry;
    }
  }

  private CheckpointException twice(String what) {
    return new CheckpointException(
        "%s changes %s more than once, as files of several adapters do; give one adapter"
            .formatted(file.path(), StrictJson.shown(what)));
  }

  private static Optional<String> module(String name) {
    Matcher matcher = MODULE.matcher(name);
    return matcher.find() ? Optional.of(matcher.group(1)) : Optional.empty();
  }

  /** What the user should know, one sentence each. */
  List<String> notes() {
    return notes;
  }

  Path folder() {
    return folder;
  }

  InputFile file() {
    return file;
  }

  /**
   * Changes a base's tensors.
   *
   * @param stored by their canonical names; a head that is tied isn't among them
   * @throws CheckpointException if the adapter doesn't fit
   */
  void merge(Map<String, CheckpointReader.Entry> stored) throws CheckpointException {
    boolean tied = !stored.containsKey(Gpt2Layout.HEAD);
    replace(stored, tied);
    for (Map.Entry<String, Factors> change : changes.entrySet()) {
      String module = change.getKey();
      boolean shared = tied && (module.equals(HEAD) || module.equals(WTE));
      String tensor = (shared ? WTE : module) + ".weight";
      CheckpointReader.Entry matrix = stored.get(tensor);
      if (matrix == null) {
        throw new CheckpointException(
            "%s changes %s, which the model doesn't have"
                .formatted(file.path(), StrictJson.shown(module)));
      }
      stored.put(tensor, changed(module, matrix, change.getValue()));
      if (shared) {
        notes.add(
            "the adapter changes %s, and the head is tied to wte: both change, as when PEFT merges"
                .formatted(module));
      }
    }
    notes.add(
        "%s is merged: %d matrices changed, %d tensors replaced"
            .formatted(folder, changes.size(), whole.size()));
  }

  private void replace(Map<String, CheckpointReader.Entry> stored, boolean tied)
      throws CheckpointException {
    CheckpointReader.Entry wte = stored.get("wte.weight");
    Set<String> allowed = new LinkedHashSet<>(stored.keySet());
    allowed.add(Gpt2Layout.HEAD);
    for (Map.Entry<String, CheckpointReader.Entry> tensor : whole.entrySet()) {
      if (!allowed.contains(tensor.getKey())) {
        throw new CheckpointException(
            "%s replaces %s, which the model doesn't have"
                .formatted(file.path(), StrictJson.shown(tensor.getKey())));
      }
      stored.put(tensor.getKey(), tensor.getValue());
    }
    boolean tieEnds =
        tied
            && whole.containsKey("wte.weight")
            && !whole.containsKey(Gpt2Layout.HEAD)
            && config.savesWhole(WTE)
            && !config.keepsTie();
    if (tieEnds && wte != null) {
      stored.put(Gpt2Layout.HEAD, wte);
      notes.add("the adapter has a wte of its own, and the head stays the base's, as in PEFT");
    }
  }

  private CheckpointReader.Entry changed(
      String module, CheckpointReader.Entry matrix, Factors factors) throws CheckpointException {
    CheckpointReader.Entry a = factors.a;
    CheckpointReader.Entry b = factors.b;
    if (a == null || b == null) {
      throw new CheckpointException(
          "%s has one matrix of two for %s".formatted(file.path(), StrictJson.shown(module)));
    }
    if (matrix.shape().size() != 2 || a.shape().size() != 2 || b.shape().size() != 2) {
      throw misfit(module, matrix, a, b);
    }
    boolean table = factors.embedding;
    boolean plain = module.equals(HEAD) && !table; // [out, in], as torch.nn.Linear has it
    long rows = matrix.shape().getFirst();
    long columns = matrix.shape().getLast();
    long rank = a.shape().getFirst();
    long inputs = table || !plain ? rows : columns;
    long outputs = table || !plain ? columns : rows;
    if (rank == 0
        || !a.shape().equals(List.of(rank, inputs))
        || !b.shape().equals(List.of(outputs, rank))
        || matrix.data() == null) {
      throw misfit(module, matrix, a, b);
    }
    double scale = config.scale(factors.called, Math.toIntExact(rank));
    float[] ofA = floats(a);
    float[] ofB = floats(b);
    int r = (int) rank;
    return new CheckpointReader.Entry(
        matrix.name(),
        matrix.dtype(),
        matrix.shape(),
        plain
            ? new LoraData(matrix.data(), ofB, ofA, r, (int) columns, scale)
            : new LoraData(
                matrix.data(),
                transposed(ofA, r, (int) inputs),
                transposed(ofB, (int) outputs, r),
                r,
                (int) columns,
                scale),
        matrix.file());
  }

  private CheckpointException misfit(
      String module,
      CheckpointReader.Entry matrix,
      CheckpointReader.Entry a,
      CheckpointReader.Entry b) {
    return new CheckpointException(
        "%s: A %s and B %s don't fit %s, which is %s in the model"
            .formatted(
                file.path(), a.shape(), b.shape(), StrictJson.shown(module), matrix.shape()));
  }

  private static float[] floats(CheckpointReader.Entry entry) throws CheckpointException {
    TensorData data = entry.data();
    if (data == null) {
      throw new CheckpointException(
          "%s: %s is stored as %s, which is not read"
              .formatted(
                  entry.file(), StrictJson.shown(entry.name()), StrictJson.shown(entry.dtype())));
    }
    float[] values = new float[Math.toIntExact(data.elements())];
    data.read(0, values, 0, values.length);
    return values;
  }

  private static float[] transposed(float[] matrix, int rows, int columns) {
    float[] to = new float[matrix.length];
    for (int i = 0; i < rows; i++) {
      for (int j = 0; j < columns; j++) {
        to[j * rows + i] = matrix[i * columns + j];
      }
    }
    return to;
  }
}
