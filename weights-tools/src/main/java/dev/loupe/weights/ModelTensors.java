package dev.loupe.weights;

import dev.loupe.weights.config.Anchor;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.config.OtherModels;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.tensor.TensorData;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a checkpoint stores, by its names in the model, on the way to being a whole GPT-2: checked
 * against the shapes that a config calls for.
 */
final class ModelTensors {
  static final String WTE = "wte.weight";

  private final Path file;
  private final Anchor anchor;
  private final Map<String, CheckpointReader.Entry> stored;

  /**
   * @param file for messages: the checkpoint's, or its first
   * @throws CheckpointException if two models are stored, or a tensor twice
   */
  ModelTensors(Path file, List<CheckpointReader.Entry> entries) throws CheckpointException {
    this.file = file;
    this.anchor = Anchor.of(entries.stream().map(CheckpointReader.Entry::name).toList(), file);
    this.stored = byCanonicalName(entries, anchor);
  }

  /** The name in the model of what is stored under this name. */
  String canonical(String name) {
    return anchor.canonical(name);
  }

  /** The entries by their names in the model. A caller may change them. */
  Map<String, CheckpointReader.Entry> stored() {
    return stored;
  }

  /**
   * A head and wte that are one tensor in the file, under one name or both, become wte alone: torch
   * saves both names, and other programs keep either.
   *
   * @param tied whether the config ties them
   */
  void tieHead(boolean tied) {
    CheckpointReader.Entry head = stored.get(Gpt2Layout.HEAD);
    CheckpointReader.Entry wte = stored.get(WTE);
    if (head == null) {
      return;
    }
    if (wte == null && tied) {
      stored.put(WTE, head);
      stored.remove(Gpt2Layout.HEAD);
    } else if (wte != null && isSame(head, wte)) {
      stored.remove(Gpt2Layout.HEAD);
    }
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
  private void checkLayers(Gpt2Config config) throws CheckpointException {
    CheckpointReader.Entry surplus = stored.get("h.%d.ln_1.weight".formatted(config.nLayer()));
    if (surplus != null) {
      throw new CheckpointException(
          "%s holds %s, but its config says n_layer %d"
              .formatted(surplus.file(), surplus.name(), config.nLayer()));
    }
  }

  /**
   * The tensors that a model of this shape has, in the order of the forward pass.
   *
   * @throws CheckpointException if one is missing, of another shape or of a type that can't be read
   */
  Map<String, StoredTensor> needed(Gpt2Config config) throws CheckpointException {
    checkLayers(config);
    Map<String, StoredTensor> needed = new LinkedHashMap<>();
    Map<String, List<Long>> shapes = Gpt2Layout.shapes(config, stored.containsKey(Gpt2Layout.HEAD));
    for (Map.Entry<String, List<Long>> expected : shapes.entrySet()) {
      String name = expected.getKey();
      CheckpointReader.Entry entry = stored.get(name);
      if (entry == null) {
        throw missing(name, config);
      }
      checkShape(name, entry, expected.getValue());
      needed.put(name, new StoredTensor(name, entry.shape(), dataOf(entry)));
    }
    return needed;
  }

  private CheckpointException missing(String name, Gpt2Config config) throws CheckpointException {
    OtherModels.refuse(file, stored.keySet());
    String hint =
        stored.isEmpty()
            ? "it holds no weights at all"
            : "what it holds starts with " + StrictJson.shown(stored.keySet().iterator().next());
    return new CheckpointException(
        "%s has no tensor %s, which its config (n_layer %d) calls for; %s"
            .formatted(file, name, config.nLayer(), hint));
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
}
