package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.ggml.GgufNames;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A checkpoint written as GGUF and read back. */
class Gpt2GgufTest {
  /** Nothing square; rows of whole blocks of 32. */
  private static final Gpt2Config WIDE =
      new Gpt2Config(2, 4, 64, 11, 37, 96, Activation.GELU_NEW, 1e-6f, true, false, -1, 36);

  private static final Vocabulary VOCABULARY =
      new Vocabulary(
          List.of(
              new Vocabulary.Token("Ġa", Vocabulary.Kind.NORMAL),
              new Vocabulary.Token("<|endoftext|>", Vocabulary.Kind.SPECIAL),
              new Vocabulary.Token("né", Vocabulary.Kind.ADDED)),
          List.of("Ġ a", "n e"));

  @TempDir Path folder;

  private Path model(Gpt2Config config, boolean separateHead) throws IOException {
    Path model = folder.resolve("model");
    return ModelFolder.random(
        model, config, new RandomCheckpoint.Layout(DType.F32, separateHead, true, true));
  }

  private GgufFile converted(Path model, GgmlType type) throws IOException {
    Path file = folder.resolve("model.gguf");
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      Gpt2Gguf.write(checkpoint, VOCABULARY, type, file, Progress.NONE);
    }
    return new GgufFile(file);
  }

  @Test
  void metadataSayWhatLlamaCppAsks() throws IOException {
    GgufFile file = converted(model(WIDE, false), GgmlType.Q8_0);
    assertEquals("gpt2", file.metadata.get("general.architecture"));
    assertEquals(7, file.metadata.get("general.file_type"));
    assertEquals(11, file.metadata.get("gpt2.context_length"));
    assertEquals(64, file.metadata.get("gpt2.embedding_length"));
    assertEquals(96, file.metadata.get("gpt2.feed_forward_length"));
    assertEquals(2, file.metadata.get("gpt2.block_count"));
    assertEquals(4, file.metadata.get("gpt2.attention.head_count"));
    assertEquals(1e-6f, file.metadata.get("gpt2.attention.layer_norm_epsilon"));
    assertEquals("gpt2", file.metadata.get("tokenizer.ggml.model"));
    assertEquals("gpt-2", file.metadata.get("tokenizer.ggml.pre"));
    List<?> tokens = file.list("tokenizer.ggml.tokens");
    assertEquals(37, tokens.size(), "padding rows have names too");
    assertEquals(List.of("Ġa", "<|endoftext|>", "né", "[PAD3]"), tokens.subList(0, 4));
    List<?> kinds = file.list("tokenizer.ggml.token_type");
    assertEquals(37, kinds.size());
    assertEquals(List.of(1, 3, 4, 5), kinds.subList(0, 4));
    assertEquals(List.of("Ġ a", "n e"), file.metadata.get("tokenizer.ggml.merges"));
    assertEquals(36, file.metadata.get("tokenizer.ggml.eos_token_id"));
    assertFalse(file.metadata.containsKey("tokenizer.ggml.bos_token_id"), "the config has none");
    assertEquals(false, file.metadata.get("tokenizer.ggml.add_bos_token"));
  }

  @Test
  void namesOfLlamaCpp() throws IOException {
    GgufFile tied = converted(model(WIDE, false), GgmlType.F16);
    assertEquals(2 + 2 * 12 + 2, tied.tensors.size());
    for (String name :
        List.of(
            "token_embd.weight",
            "position_embd.weight",
            "output_norm.weight",
            "output_norm.bias")) {
      assertTrue(tied.tensors.containsKey(name), name);
    }
    for (String name :
        List.of("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down")) {
      for (int layer = 0; layer < 2; layer++) {
        assertTrue(tied.tensors.containsKey("blk.%d.%s.weight".formatted(layer, name)), name);
        assertTrue(tied.tensors.containsKey("blk.%d.%s.bias".formatted(layer, name)), name);
      }
    }
    assertEquals(List.of(64L, 192L), tied.tensor("blk.1.attn_qkv.weight").innermostFirst());
    assertEquals(List.of(64L, 96L), tied.tensor("blk.1.ffn_up.weight").innermostFirst());
    assertEquals(List.of(96L, 64L), tied.tensor("blk.1.ffn_down.weight").innermostFirst());
    assertEquals(List.of(64L, 37L), tied.tensor("token_embd.weight").innermostFirst());
    assertEquals("blk.12.ffn_down.bias", GgufNames.of("h.12.mlp.c_proj.bias"));
  }

  @Test
  void valuesAreTheCheckpoints() throws IOException {
    Path model = model(WIDE, true);
    for (GgmlType type : List.of(GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q8_0)) {
      GgufFile file = converted(model, type);
      assertEquals(2 + 2 * 12 + 3, file.tensors.size(), "with a head of its own");
      try (Checkpoint checkpoint = Checkpoint.open(model)) {
        for (StoredTensor tensor : checkpoint.tensors()) {
          compare(tensor, file, type);
        }
      }
      long last = file.tensors.values().stream().mapToLong(GgufFile.Tensor::offset).max().orElse(0);
      assertTrue(file.dataStart + last < file.fileBytes());
      assertEquals(0, (file.fileBytes() - file.dataStart) % 32);
    }
  }

  private static void compare(StoredTensor tensor, GgufFile file, GgmlType type) {
    String name = GgufNames.of(tensor.name());
    boolean plain = tensor.shape().size() == 1 || tensor.name().equals("wpe.weight");
    assertEquals(plain ? 0 : type.number(), file.tensor(name).type(), name);
    float[] expected = new float[(int) tensor.elements()];
    tensor.read(0, expected, 0, expected.length);
    float[] actual = file.values(name);
    assertEquals(expected.length, actual.length, name);
    boolean transposed = name.startsWith("blk.") && tensor.shape().size() == 2;
    int outputs = tensor.shape().getLast().intValue();
    int inputs = expected.length / outputs;
    float largest = 0;
    for (float value : expected) {
      largest = Math.max(largest, Math.abs(value));
    }
    // half a step of a block whose largest weight is the tensor's, and the rounding of its scale
    float tolerance =
        plain || type == GgmlType.F32
            ? 0
            : switch (type) {
              case F16 -> largest / 2048;
              case BF16 -> largest / 256;
              default -> largest / 254 + largest / 2048;
            };
    for (int i = 0; i < expected.length; i++) {
      int at = transposed ? i % outputs * inputs + i / outputs : i;
      assertEquals(expected[i], actual[at], tolerance, name);
    }
  }

  @Test
  void modelsThatLlamaCppWouldComputeWrongly() throws IOException {
    Path file = folder.resolve("no.gguf");
    Path model = folder.resolve("odd");
    ModelFolder.random(model, WIDE, RandomCheckpoint.Layout.PLAIN);
    Path json = ModelFolder.config(model);
    String sound = Files.readString(json);
    for (String[] change :
        new String[][] {
          {"\"gelu_new\"", "\"relu\""},
          {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false"},
          {
            "\"scale_attn_by_inverse_layer_idx\": false",
            "\"scale_attn_by_inverse_layer_idx\": true"
          }
        }) {
      Files.writeString(json, sound);
      ModelFolder.replace(json, change[0], change[1]);
      Refusal.of(
          () -> write(model, GgmlType.F16, file), "odd", change[1].replaceAll(".*: ?|\"", ""));
    }
    Files.writeString(json, sound);
    write(model, GgmlType.F16, file);
    assertTrue(Files.exists(file));
  }

  @Test
  void rowsThatAreNoWholeBlocks() throws IOException {
    Gpt2Config narrow =
        new Gpt2Config(1, 2, 32, 11, 37, 40, Activation.GELU_NEW, 1e-6f, true, false, -1, 36);
    Path model = model(narrow, false);
    Path file = folder.resolve("narrow.gguf");
    Refusal.of(() -> write(model, GgmlType.Q8_0, file), "40", "32", "q8_0", "f16");
    assertFalse(Files.exists(file));
    write(model, GgmlType.F16, file);
  }

  private static void write(Path model, GgmlType type, Path file) throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      Gpt2Gguf.write(checkpoint, VOCABULARY, type, file, Progress.NONE);
    }
  }

  @Test
  void aWeightThatIsNoNumberIsNamed() throws IOException {
    Path model = model(WIDE, false);
    ModelFolder.rewrite(
        model,
        tensors ->
            tensors.forEach(
                (entry, data) -> {
                  if (entry.name().endsWith("h.1.mlp.c_fc.weight")) {
                    data[4 * 7 + 3] = 0x7f; // 1e38 or more: beyond f16, and its scale too
                    data[4 * 7 + 2] = 0x10;
                  }
                }));
    Path file = folder.resolve("bad.gguf");
    for (GgmlType type : List.of(GgmlType.F16, GgmlType.Q8_0)) {
      Refusal.of(() -> write(model, type, file), "h.1.mlp.c_fc.weight", "E38", type);
      assertFalse(Files.exists(file));
    }
  }

  @Test
  void aTokenizerOfAnotherModel() throws IOException {
    Gpt2Config small =
        new Gpt2Config(1, 4, 32, 5, 2, 64, Activation.GELU_NEW, 1e-6f, true, false, -1, 1);
    Path model = model(small, false);
    Refusal.of(() -> write(model, GgmlType.F16, folder.resolve("x")), "3 tokens", "2");
  }
}
