package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SplittableRandom;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** LoRA adapters as PEFT writes them, against sums written out. */
class AdapterTest {
  private static final String FRONT = "base_model.model.transformer.";
  private static final int C = ModelFolder.ODD.nEmbd();
  private static final int V = ModelFolder.ODD.vocabSize();
  private static final int INNER = ModelFolder.ODD.nInner();

  @TempDir Path temporary;
  private Path base = Path.of("");
  private Path adapter = Path.of("");
  private final Map<SafetensorsWriter.Entry, byte[]> tensors = new LinkedHashMap<>();
  private final Map<String, float[]> values = new LinkedHashMap<>();
  private final SplittableRandom random = new SplittableRandom(11);

  @BeforeEach
  void model() throws IOException {
    base = temporary.resolve("base");
    ModelFolder.random(base, ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
    adapter = Files.createDirectory(temporary.resolve("adapter"));
  }

  private void put(String name, long... shape) {
    int n = 1;
    for (long extent : shape) {
      n *= (int) extent;
    }
    float[] x = new float[n];
    ByteBuffer bytes = ByteBuffer.allocate(4 * n).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < n; i++) {
      x[i] = (float) random.nextDouble(-1, 1);
      bytes.putFloat(x[i]);
    }
    List<Long> extents = java.util.Arrays.stream(shape).boxed().toList();
    tensors.put(new SafetensorsWriter.Entry(name, DType.F32, extents), bytes.array());
    values.put(name, x);
  }

  private void linear(String module, int rank, int in, int out) {
    put(FRONT + module + ".lora_A.weight", rank, in);
    put(FRONT + module + ".lora_B.weight", out, rank);
  }

  private void write(String fields) throws IOException {
    ModelFolder.write(adapter.resolve("adapter_model.safetensors"), tensors);
    config(fields);
  }

  private void config(String fields) throws IOException {
    Files.writeString(
        adapter.resolve("adapter_config.json"),
        ("{'peft_type': 'LORA', 'base_model_name_or_path': '" + base + "'" + fields + "}")
            .replace('\'', '"'));
  }

  private Checkpoint open() throws CheckpointException {
    return Checkpoint.open(base, null, adapter);
  }

  private void refused(Object... words) {
    Refusal.of(() -> open().close(), words);
  }

  private static float[] floats(Checkpoint checkpoint, String name) {
    return Same.floats(checkpoint.tensor(name));
  }

  private float[] value(String name) {
    float[] x = values.get(name);
    if (x == null) {
      throw new IllegalArgumentException(name);
    }
    return x;
  }

  /** W [in, out] + s (B A) transposed. */
  private float[] conv1d(float[] w, String module, int rank, int in, int out, double s) {
    float[] a = value(FRONT + module + ".lora_A.weight");
    float[] b = value(FRONT + module + ".lora_B.weight");
    float[] y = new float[in * out];
    for (int o = 0; o < out; o++) {
      for (int i = 0; i < in; i++) {
        double delta = 0;
        for (int k = 0; k < rank; k++) {
          delta += (double) b[o * rank + k] * a[k * in + i];
        }
        y[i * out + o] = (float) (w[i * out + o] + s * delta);
      }
    }
    return y;
  }

  private static void assertHolds(float[] expected, StoredTensor tensor) {
    assertArrayEquals(expected, Same.floats(tensor), 1e-6f, tensor.name());
    try (Arena arena = Arena.ofConfined()) {
      float[] dense = new float[expected.length];
      MemorySegment data = tensor.data(arena);
      tensor.dtype().decode(data, 0, dense, 0, dense.length);
      assertArrayEquals(Same.floats(tensor), dense, tensor.name());
    }
    float[] part = new float[9];
    tensor.read(tensor.elements() - 7, part, 2, 7);
    assertEquals(expected[expected.length - 1], part[8], 1e-6f);
    assertEquals(expected[expected.length - 7], part[2], 1e-6f);
  }

  @ParameterizedTest
  @CsvSource({
    "false, false, 8",
    "true, false, 13.856406460551018", // 24 / sqrt(3)
    "false, true, 8",
    "true, true, 13.856406460551018"
  })
  void everyMatrixOfABlock(boolean rslora, boolean fanInFanOut, double scale) throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    linear("h.1.attn.c_proj", 3, C, C);
    linear("h.1.mlp.c_fc", 3, C, INNER);
    linear("h.0.mlp.c_proj", 3, INNER, C);
    write(
        ",'r': 3, 'lora_alpha': 24, 'use_rslora': %s, 'fan_in_fan_out': %s, 'bias': 'none'"
            .formatted(rslora, fanInFanOut));
    try (Checkpoint plain = Checkpoint.open(base);
        Checkpoint merged = open()) {
      Map<String, int[]> sizes =
          Map.of(
              "h.0.attn.c_attn", new int[] {C, 3 * C},
              "h.1.attn.c_proj", new int[] {C, C},
              "h.1.mlp.c_fc", new int[] {C, INNER},
              "h.0.mlp.c_proj", new int[] {INNER, C});
      for (StoredTensor tensor : plain.tensors()) {
        String module = tensor.name().replace(".weight", "");
        int[] size = sizes.get(module);
        float[] w = Same.floats(tensor);
        assertHolds(
            size == null ? w : conv1d(w, module, 3, size[0], size[1], scale),
            merged.tensor(tensor.name()));
      }
      assertFalse(merged.has("lm_head.weight"));
      assertEquals(2, merged.files().size());
      assertFalse(merged.sha256().equals(plain.sha256()));
      assertEquals(Optional.of(adapter), merged.adapter());
      assertEquals(
          List.of(adapter + " is merged: 4 matrices changed, 0 tensors replaced"), merged.notes());
      assertEquals(plain.config(), merged.config());
    }
  }

  @Test
  void ranksAndAlphasByPattern() throws IOException {
    linear("h.0.attn.c_attn", 2, C, 3 * C);
    linear("h.1.attn.c_attn", 4, C, 3 * C);
    linear("h.1.mlp.c_fc", 3, C, INNER);
    write(
        ",'r': 3, 'lora_alpha': 6, 'rank_pattern': {'h.0.attn.c_attn': 2, 'h\\\\.1\\\\..*c_attn':"
            + " 4, 'fc': 9}, 'alpha_pattern': {'c_attn': 1.5, '^transformer.h.1.mlp.c_fc': 7}");
    try (Checkpoint plain = Checkpoint.open(base);
        Checkpoint merged = open()) {
      String name = "h.0.attn.c_attn";
      assertHolds(
          conv1d(floats(plain, name + ".weight"), name, 2, C, 3 * C, 1.5 / 2),
          merged.tensor(name + ".weight"));
      name = "h.1.attn.c_attn";
      assertHolds(
          conv1d(floats(plain, name + ".weight"), name, 4, C, 3 * C, 1.5 / 4),
          merged.tensor(name + ".weight"));
      name = "h.1.mlp.c_fc"; // the pattern fc is not a whole component of its name
      assertHolds(
          conv1d(floats(plain, name + ".weight"), name, 3, C, INNER, 7.0 / 3),
          merged.tensor(name + ".weight"));
    }
    config(",'r': 3, 'lora_alpha': 6");
    refused("says rank 3.0 for transformer.h.0.attn.c_attn", "have rank 2");
    config(",'r': 3, 'rank_pattern': {'(': 1}");
    refused("adapter_config.json", "rank_pattern", "can't be read");
  }

  @Test
  void anotherPlaceAnotherContainer() throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    Map<SafetensorsWriter.Entry, byte[]> raw = new LinkedHashMap<>();
    tensors.forEach(
        (entry, data) ->
            raw.put(
                new SafetensorsWriter.Entry(
                    entry.name().replace("transformer.", "").replace("lora_A.", "lora_A.default."),
                    entry.dtype(),
                    entry.shape()),
                data));
    TorchWriter writer = TorchWriter.plain();
    Files.write(adapter.resolve("adapter_model.bin"), writer.zip("a/", writer.stateDict(raw)));
    config(",'r': 3, 'lora_alpha': 3");
    try (Checkpoint plain = Checkpoint.open(base);
        Checkpoint merged = open()) {
      String name = "h.0.attn.c_attn";
      assertHolds(
          conv1d(floats(plain, name + ".weight"), name, 3, C, 3 * C, 1),
          merged.tensor(name + ".weight"));
    }
  }

  /** The table of embeddings and a tied head are one tensor, and stay so. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void embeddingsAndHead(boolean tied) throws IOException {
    if (!tied) {
      base = temporary.resolve("untied");
      ModelFolder.random(
          base, ModelFolder.ODD, new RandomCheckpoint.Layout(DType.F16, true, true, false));
    }
    put(FRONT + "wte.lora_embedding_A", 2, V);
    put(FRONT + "wte.lora_embedding_B", C, 2);
    put("base_model.model.lm_head.lora_A.weight", 2, C);
    put("base_model.model.lm_head.lora_B.weight", V, 2);
    write(",'r': 2, 'lora_alpha': 5");
    float[] a = value(FRONT + "wte.lora_embedding_A");
    float[] b = value(FRONT + "wte.lora_embedding_B");
    float[] headA = value("base_model.model.lm_head.lora_A.weight");
    float[] headB = value("base_model.model.lm_head.lora_B.weight");
    try (Checkpoint plain = Checkpoint.open(base);
        Checkpoint merged = open()) {
      assertEquals(!tied, merged.has("lm_head.weight"));
      float[] wte = floats(plain, "wte.weight");
      float[] head = tied ? wte : floats(plain, "lm_head.weight");
      for (int v = 0; v < V; v++) {
        for (int c = 0; c < C; c++) {
          double table = b[2 * c] * (double) a[v] + b[2 * c + 1] * (double) a[V + v];
          double line = headB[2 * v] * (double) headA[c] + headB[2 * v + 1] * (double) headA[C + c];
          wte[v * C + c] += (float) (2.5 * (tied ? table + line : table));
          if (!tied) {
            head[v * C + c] += (float) (2.5 * line);
          }
        }
      }
      assertHolds(wte, merged.tensor("wte.weight"));
      if (!tied) {
        assertHolds(head, merged.tensor("lm_head.weight"));
      }
      assertEquals(
          tied ? 2 : 0, merged.notes().stream().filter(note -> note.contains("tied")).count());
    }
  }

  @Test
  void modulesThatAreSavedWhole() throws IOException {
    put("base_model.model.lm_head.weight", V, C);
    put(FRONT + "h.0.ln_1.weight", C);
    put(FRONT + "h.1.attn.c_attn.base_layer.bias", 3L * C);
    put("base_model.model.score.weight", 2, C);
    write(",'r': 2, 'modules_to_save': ['lm_head', 'ln_1'], 'bias': 'all'");
    try (Checkpoint plain = Checkpoint.open(base);
        Checkpoint merged = open()) {
      assertHolds(value("base_model.model.lm_head.weight"), merged.tensor("lm_head.weight"));
      assertHolds(value(FRONT + "h.0.ln_1.weight"), merged.tensor("h.0.ln_1.weight"));
      assertHolds(
          value(FRONT + "h.1.attn.c_attn.base_layer.bias"), merged.tensor("h.1.attn.c_attn.bias"));
      assertHolds(floats(plain, "wte.weight"), merged.tensor("wte.weight"));
      assertTrue(merged.notes().getFirst().contains("classifier"), merged.notes()::toString);
    }
  }

  /**
   * A wte that is trained whole leaves a tied head behind, as in PEFT, unless it is told not to.
   */
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "'modules_to_save': ['wte'] | true",
        "'modules_to_save': ['wte'], 'ensure_weight_tying': true | false",
        "'modules_to_save': null | false"
      })
  void aTableThatIsSavedWhole(String fields, boolean tieEnds) throws IOException {
    put(FRONT + "wte.weight", V, C);
    write("," + fields);
    try (Checkpoint plain = Checkpoint.open(base);
        Checkpoint merged = open()) {
      assertHolds(value(FRONT + "wte.weight"), merged.tensor("wte.weight"));
      assertEquals(tieEnds, merged.has("lm_head.weight"));
      if (tieEnds) {
        assertHolds(floats(plain, "wte.weight"), merged.tensor("lm_head.weight"));
      }
    }
  }

  @Test
  void aTableWithMoreRows() throws IOException {
    put(FRONT + "wte.weight", V + 3, C);
    write("");
    try (Checkpoint merged = open()) {
      assertEquals(V + 3, merged.config().vocabSize());
      assertHolds(value(FRONT + "wte.weight"), merged.tensor("wte.weight"));
    }
  }

  @Test
  void aFolderOpensItsBase() throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(",'r': 3");
    try (Checkpoint byFolder = Checkpoint.open(adapter);
        Checkpoint merged = open()) {
      Same.model(merged, byFolder);
    }
    replaceBase("../base");
    try (Checkpoint byFolder = Checkpoint.open(adapter)) {
      assertEquals(Optional.of(adapter), byFolder.adapter());
    }
    replaceBase("somebody/gpt2-of-theirs");
    Refusal.of(
        () -> Checkpoint.open(adapter).close(),
        "adapter of somebody/gpt2-of-theirs, which is not here",
        "as its adapter");
    Files.writeString(adapter.resolve("adapter_config.json"), "{\"peft_type\": \"LORA\"}");
    Refusal.of(() -> Checkpoint.open(adapter).close(), "names no base_model_name_or_path");
    Files.copy(ModelFolder.weights(base), ModelFolder.weights(adapter));
    Refusal.of(() -> Checkpoint.open(adapter).close(), "holds a model", "and an adapter");
    Refusal.of(() -> Checkpoint.open(base, null, base).close(), "is no adapter");
  }

  private void replaceBase(String name) throws IOException {
    Path file = adapter.resolve("adapter_config.json");
    Files.writeString(
        file,
        Files.readString(file)
            .replaceAll("(\"base_model_name_or_path\": )\"[^\"]*\"", "$1\"" + name + "\""));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "'use_dora': true | use_dora",
        "'lora_bias': true | lora_bias",
        "'layer_replication': [[0, 1]] | layer_replication",
        "'trainable_token_indices': [3] | trainable_token_indices",
        "'target_parameters': ['x'] | target_parameters",
        "'init_lora_weights': 'pissa_niter_4' | init_lora_weights pissa_niter_4",
        "'init_lora_weights': 'olora' | olora",
        "'loftq_config': {'bits': 4} | loftq_config"
      })
  void refusesOtherKinds(String field, String word) throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(",'r': 3," + field);
    refused("adapter_config.json", word);
  }

  @Test
  void fieldsWithoutEffect() throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(
        ",'r': 3, 'use_dora': false, 'layer_replication': null, 'loftq_config': {}, 'x': NaN,"
            + " 'target_modules': ['c_attn'], 'init_lora_weights': 'gaussian', 'new_kind': true");
    try (Checkpoint merged = open()) {
      assertTrue(
          merged.notes().getFirst().contains("sets x, new_kind, which Loupe doesn't know"),
          merged.notes()::toString);
    }
  }

  private void tensor(String name, String word, long... shape) throws IOException {
    tensors.clear();
    put(name, shape);
    write(",'r': 3");
    refused("adapter_model.safetensors", word);
  }

  @Test
  void refusesWhatDoesNotFit() throws IOException {
    for (String kind : List.of("ADALORA", "IA3", "PREFIX_TUNING")) {
      Files.writeString(
          adapter.resolve("adapter_config.json"), "{\"peft_type\": \"" + kind + "\"}");
      refused("adapter of type " + kind);
    }
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    config(",'r': 3");
    refused("no adapter_model.safetensors or adapter_model.bin");
    tensor(FRONT + "h.0.attn.c_attn.lora_A.weight", "one matrix of two for h.0.attn.c_attn", 3, C);
    tensor(FRONT + "h.0.attn.c_attn.lora_magnitude_vector", "lora_magnitude_vector", C);
    tensor(FRONT + "h.0.attn.c_attn.lora_B.bias", "lora_B.bias", C);
    tensor(FRONT + "h.0.attn.q_proj.lora_A.weight", "h.0.attn.q_proj", 3, C);
    tensor("base_model.model.layers.0.q_proj.lora_A.weight", "a GPT-2 doesn't have", 3, C);
    tensor(FRONT + "h.7.ln_1.weight", "h.7.ln_1.weight", C);
    tensors.clear();
    linear("h.0.attn.c_attn", 3, C, C);
    write(",'r': 3");
    refused("A [3, 50] and B [50, 3] don't fit h.0.attn.c_attn, which is [50, 150]");
    Files.writeString(
        adapter.resolve("adapter_model.safetensors"), "version https://git-lfs.github.com/spec/v1");
    refused("adapter_model.safetensors", "Git LFS pointer");
  }

  @Test
  void whatIsMergedIsWritten() throws IOException {
    linear("h.0.attn.c_attn", 3, C, 3 * C);
    write(",'r': 3");
    Path copy = temporary.resolve("copy");
    try (Checkpoint merged = open()) {
      Gpt2Safetensors.write(merged, Optional.empty(), Map.of(), copy, Progress.NONE);
      try (Checkpoint written = Checkpoint.open(copy)) {
        Same.model(merged, written);
      }
    }
  }
}
