package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** LoRA adapters as PEFT writes them, against sums written out. */
class AdapterTest extends AdapterFixture {
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
