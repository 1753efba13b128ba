package dev.loupe.weights;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.loupe.weights.config.ConfigWriter;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.tensor.StoredTensor;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Formatter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * What a checkpoint holds and what running it takes.
 *
 * @param source what was opened
 * @param files the files that hold the weights
 * @param fileBytes their size
 * @param config the model's shape
 * @param tensors the model's tensors, in the order of the forward pass
 * @param ignored what else is stored, as it is named there
 * @param head where the output head comes from
 * @param endsFrom where the end tokens come from: a file's name
 * @param sha256 of the weights, if it was computed; see {@link Checkpoint#sha256}
 */
public record Inspection(
    Path source,
    List<Path> files,
    long fileBytes,
    Gpt2Config config,
    List<Tensor> tensors,
    List<String> ignored,
    Head head,
    String endsFrom,
    Optional<String> sha256) {
  private static final int[] CONTEXTS = {128, 256, 512, 1024, 2048, 4096, 8192};
  private static final String LAYER = "h\\.[0-9]+\\.";

  public Inspection {
    files = List.copyOf(files);
    tensors = List.copyOf(tensors);
    ignored = List.copyOf(ignored);
  }

  /**
   * A tensor without its data.
   *
   * @param dtype as in the file
   * @param bytes of the file that it takes
   */
  public record Tensor(String name, String dtype, List<Long> shape, long elements, long bytes) {}

  /** Where the output head comes from. */
  public enum Head {
    /** There is no {@code lm_head.weight}: {@code wte} serves. */
    TIED("tied to wte.weight"),
    /** {@code lm_head.weight} is there and equals {@code wte} in every byte. */
    TIED_STORED_TWICE("tied: lm_head.weight repeats wte.weight"),
    /** {@code lm_head.weight} has values of its own. */
    SEPARATE("lm_head.weight, separate");

    private final String text;

    Head(String text) {
      this.text = text;
    }
  }

  /** In what the weights may be held in memory: matrices in this, vectors always in f32. */
  public enum Precision {
    F32(4),
    /** bf16 takes as much. */
    F16(2),
    INT8(1);

    private final int bytes;

    Precision(int bytes) {
      this.bytes = bytes;
    }
  }

  /** Looks at an open checkpoint. Reads no weights, but a stored head is compared with wte. */
  public static Inspection of(Checkpoint checkpoint) {
    return of(checkpoint, Optional.empty());
  }

  /**
   * Likewise, and reads all of its files for their hash.
   *
   * @param progress hears bytes
   */
  public static Inspection of(Checkpoint checkpoint, Progress progress) {
    return of(checkpoint, Optional.of(checkpoint.sha256(progress)));
  }

  private static Inspection of(Checkpoint checkpoint, Optional<String> sha256) {
    List<Tensor> tensors =
        checkpoint.tensors().stream()
            .map(
                t ->
                    new Tensor(
                        t.name(), t.storedAs(), t.shape(), t.elements(), t.stored().byteSize()))
            .toList();
    return new Inspection(
        checkpoint.source(),
        checkpoint.files(),
        checkpoint.fileBytes(),
        checkpoint.config(),
        tensors,
        checkpoint.ignored(),
        headOf(checkpoint),
        checkpoint.endsFrom(),
        sha256);
  }

  private static Head headOf(Checkpoint checkpoint) {
    if (!checkpoint.has(Gpt2Layout.HEAD)) {
      return Head.TIED;
    }
    StoredTensor head = checkpoint.tensor(Gpt2Layout.HEAD);
    StoredTensor wte = checkpoint.tensor("wte.weight");
    return head.dtype() == wte.dtype() && head.isSameAs(wte)
        ? Head.TIED_STORED_TWICE
        : Head.SEPARATE;
  }

  /** Number of weights; a tied head counts once. */
  public long parameters() {
    return modelTensors().stream().mapToLong(Tensor::elements).sum();
  }

  /** Bytes of all weights when loaded. An estimate for int8, whose scales are left out. */
  public long weightBytes(Precision precision) {
    return modelTensors().stream()
        .mapToLong(t -> t.elements * (t.shape.size() > 1 ? precision.bytes : 4))
        .sum();
  }

  /** Bytes of the keys and values of {@code context} tokens in all layers. */
  public long kvCacheBytes(int context, Precision precision) {
    return 2L * config.nLayer() * context * config.nEmbd() * precision.bytes;
  }

  private List<Tensor> modelTensors() {
    return head == Head.TIED_STORED_TWICE
        ? tensors.stream().filter(t -> !t.name.equals(Gpt2Layout.HEAD)).toList()
        : tensors;
  }

  private List<Integer> contexts() {
    List<Integer> contexts = new ArrayList<>();
    for (int context : CONTEXTS) {
      if (context < config.nPositions()) {
        contexts.add(context);
      }
    }
    contexts.add(config.nPositions());
    return contexts;
  }

  private TreeSet<String> dtypes() {
    TreeSet<String> dtypes = new TreeSet<>();
    tensors.forEach(t -> dtypes.add(t.dtype));
    return dtypes;
  }

  /**
   * For people: at most 80 columns, as long as names of files are short.
   *
   * @param allTensors every tensor on its own line, instead of one line for all layers
   */
  public String text(boolean allTensors) {
    Formatter out = new Formatter(Locale.ROOT);
    out.format("%s\n", source);
    for (Path file : files) {
      out.format("  file         %s\n", file.getFileName());
    }
    out.format("  size         %s (%,d bytes)\n", size(fileBytes), fileBytes);
    sha256.ifPresent(hash -> out.format("  sha256       %s\n", hash));
    out.format("  parameters   %,d\n", parameters());
    out.format("  stored as    %s\n", String.join(", ", dtypes()));
    out.format("  head         %s\n", head.text);
    out.format("\n");
    out.format(
        "  n_layer %d   n_head %d   n_embd %d   head size %d   n_inner %d\n",
        config.nLayer(), config.nHead(), config.nEmbd(), config.headDim(), config.nInner());
    out.format(
        "  n_positions %d   vocab_size %d   bos %s   eos %s\n",
        config.nPositions(),
        config.vocabSize(),
        config.bosTokenId() < 0 ? "none" : config.bosTokenId(),
        ends());
    out.format(
        "  %s   layer_norm_epsilon %s\n",
        config.activation().configName(), Float.toString(config.layerNormEpsilon()));
    if (!config.scaleAttnWeights()) {
      out.format("  scores are not divided by sqrt(head size)\n");
    }
    if (config.scaleAttnByInverseLayerIdx()) {
      out.format("  scores are divided by the number of the layer\n");
    }
    tensorTable(out, allTensors);
    memoryTable(out);
    return out.toString().replaceAll(" +\n", "\n");
  }

  private void tensorTable(Formatter out, boolean allTensors) {
    Map<String, List<Tensor>> rows = new LinkedHashMap<>();
    for (Tensor t : tensors) {
      String pattern = t.name.replaceFirst(LAYER, "h.*.");
      // what differs between layers (its type, say) must not vanish in a common line
      String key = allTensors ? t.name : pattern + " " + t.dtype + t.shape;
      rows.computeIfAbsent(key, k -> new ArrayList<>()).add(t);
    }
    out.format("\n");
    out.format("  %-28s %-5s %-16s %5s %14s\n", "tensor", "dtype", "shape", "", "bytes");
    for (List<Tensor> same : rows.values()) {
      Tensor t = same.getFirst();
      String name = same.size() > 1 ? t.name.replaceFirst(LAYER, "h.*.") : t.name;
      out.format(
          "  %-28s %-5s %-16s %5s %,14d\n",
          name,
          t.dtype,
          t.shape,
          same.size() > 1 ? "x" + same.size() : "",
          t.bytes() * same.size());
    }
    if (!ignored.isEmpty()) {
      out.format(
          "  not used: %d more, e.g. %s\n", ignored.size(), StrictJson.shown(ignored.getFirst()));
    }
  }

  private void memoryTable(Formatter out) {
    out.format("\n");
    out.format("  %-24s %12s %12s %12s\n", "memory", "f32", "f16, bf16", "int8");
    out.format(
        "  %-24s %12s %12s %12s\n",
        "weights",
        size(weightBytes(Precision.F32)),
        size(weightBytes(Precision.F16)),
        size(weightBytes(Precision.INT8)));
    for (int context : contexts()) {
      out.format(
          "  %-24s %12s %12s %12s\n",
          "KV cache, %d tokens".formatted(context),
          size(kvCacheBytes(context, Precision.F32)),
          size(kvCacheBytes(context, Precision.F16)),
          "");
    }
  }

  /** For programs: all of it, every tensor. */
  public JsonObject json() {
    JsonObject json = new JsonObject();
    json.addProperty("source", source.toString());
    JsonArray fileNames = new JsonArray();
    files.forEach(file -> fileNames.add(file.toString()));
    json.add("files", fileNames);
    json.addProperty("file_bytes", fileBytes);
    sha256.ifPresent(hash -> json.addProperty("sha256", hash));
    json.addProperty("parameters", parameters());
    json.addProperty("tied", head != Head.SEPARATE);
    JsonArray types = new JsonArray();
    dtypes().forEach(types::add);
    json.add("dtypes", types);
    json.add("config", ConfigWriter.fields(config));
    json.addProperty("eos_from", endsFrom);
    JsonArray table = new JsonArray();
    for (Tensor t : tensors) {
      JsonObject row = new JsonObject();
      row.addProperty("name", t.name);
      row.addProperty("dtype", t.dtype);
      JsonArray shape = new JsonArray();
      t.shape.forEach(shape::add);
      row.add("shape", shape);
      row.addProperty("bytes", t.bytes());
      table.add(row);
    }
    json.add("tensors", table);
    JsonArray others = new JsonArray();
    ignored.forEach(others::add);
    json.add("ignored", others);
    json.add("memory", memoryJson());
    return json;
  }

  private JsonObject memoryJson() {
    JsonObject weights = new JsonObject();
    for (Precision precision : Precision.values()) {
      weights.addProperty(precision.name().toLowerCase(Locale.ROOT), weightBytes(precision));
    }
    JsonArray caches = new JsonArray();
    for (int context : contexts()) {
      JsonObject cache = new JsonObject();
      cache.addProperty("tokens", context);
      cache.addProperty("f32", kvCacheBytes(context, Precision.F32));
      cache.addProperty("f16", kvCacheBytes(context, Precision.F16));
      caches.add(cache);
    }
    JsonObject memory = new JsonObject();
    memory.add("weights", weights);
    memory.add("kv_cache", caches);
    return memory;
  }

  private String ends() {
    return config.eosTokenIds().isEmpty()
        ? "none"
        : "%s (%s)"
            .formatted(
                config.eosTokenIds().stream()
                    .map(String::valueOf)
                    .collect(Collectors.joining(", ")),
                endsFrom);
  }

  /** Bytes in the binary unit that leaves one to four digits before the point. */
  private static String size(long bytes) {
    if (bytes < 1024) {
      return bytes + " B";
    }
    double value = bytes;
    String unit = "";
    for (String next : List.of("KiB", "MiB", "GiB", "TiB")) {
      if (value < 1024) {
        break;
      }
      value /= 1024;
      unit = next;
    }
    return String.format(Locale.ROOT, "%.1f %s", value, unit);
  }
}
