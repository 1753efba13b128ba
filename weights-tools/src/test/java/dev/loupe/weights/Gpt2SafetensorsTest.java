package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.format.LlmCReaderTest;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A checkpoint written as a Hugging Face folder and read back. */
class Gpt2SafetensorsTest {
  private static final byte[] WORDS = {'{', '}'};

  @TempDir Path temporary;

  private Path model(RandomCheckpoint.Layout layout) throws IOException {
    return ModelFolder.random(temporary.resolve("model"), ModelFolder.ODD, layout);
  }

  private static void write(Path model, Optional<DType> dtype, Path target) throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      Gpt2Safetensors.write(
          checkpoint, dtype, Map.of("tokenizer.json", WORDS), target, Progress.NONE);
    }
  }

  private static List<String> names(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> String.valueOf(file.getFileName())).sorted().toList();
    }
  }

  @ParameterizedTest
  @EnumSource(DType.class)
  void asItIsStored(DType dtype) throws IOException {
    Path model = model(new RandomCheckpoint.Layout(dtype, true, true, true));
    Path copy = temporary.resolve("copy");
    write(model, Optional.empty(), copy);
    assertEquals(List.of("config.json", "model.safetensors", "tokenizer.json"), names(copy));
    assertArrayEquals(WORDS, Files.readAllBytes(copy.resolve("tokenizer.json")));
    try (Checkpoint before = Checkpoint.open(model);
        Checkpoint after = Checkpoint.open(copy)) {
      Same.model(before, after);
      assertEquals(List.of(), after.ignored());
    }
    String config = Files.readString(copy.resolve("config.json"));
    assertTrue(config.contains("\"tie_word_embeddings\": false"), config);
  }

  @Test
  void fromAnotherFormatAndRounded() throws IOException {
    Path file = temporary.resolve("m.bin");
    Path model =
        ModelFolder.random(
            temporary.resolve("model"), LlmCReaderTest.CONFIG, RandomCheckpoint.Layout.PLAIN);
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      LlmCFile.write(checkpoint, false, 0, file);
    }
    for (DType dtype : List.of(DType.F32, DType.F16, DType.BF16)) {
      Path copy = temporary.resolve("copy-" + dtype);
      write(file, Optional.of(dtype), copy);
      try (Checkpoint before = Checkpoint.open(model);
          Checkpoint after = Checkpoint.open(copy)) {
        assertEquals(before.config(), after.config());
        for (StoredTensor tensor : before.tensors()) {
          float[] expected = Same.floats(tensor);
          for (int i = 0; i < expected.length; i++) {
            expected[i] = rounded(expected[i], dtype);
          }
          assertEquals(dtype, after.tensor(tensor.name()).dtype());
          assertArrayEquals(expected, Same.floats(after.tensor(tensor.name())), tensor.name());
        }
      }
    }
  }

  private static float rounded(float value, DType dtype) {
    return switch (dtype) {
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(value));
      case BF16 -> {
        int bits = Float.floatToRawIntBits(value);
        yield Float.intBitsToFloat((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000);
      }
      default -> value;
    };
  }

  @Test
  void aHeadThatRepeatsTheEmbeddingIsLeftOut() throws IOException {
    Path model = model(new RandomCheckpoint.Layout(DType.F32, true, false, false));
    ModelFolder.rewrite(
        model,
        tensors -> {
          SafetensorsWriter.Entry head = ModelFolder.take(tensors, "lm_head.weight");
          byte[] wte = tensors.entrySet().iterator().next().getValue();
          tensors.put(head, wte);
        });
    Path copy = temporary.resolve("copy");
    write(model, Optional.empty(), copy);
    try (Checkpoint checkpoint = Checkpoint.open(copy)) {
      assertFalse(checkpoint.has("lm_head.weight"));
    }
    assertTrue(
        Files.readString(copy.resolve("config.json")).contains("\"tie_word_embeddings\": true"));
  }

  @Test
  void aFileOfAnyName() throws IOException {
    Path model = model(RandomCheckpoint.Layout.PLAIN);
    Path folder = Files.createDirectory(temporary.resolve("out"));
    write(model, Optional.empty(), folder.resolve("my.safetensors"));
    assertEquals(List.of("config.json", "my.safetensors", "tokenizer.json"), names(folder));
    try (Checkpoint before = Checkpoint.open(model);
        Checkpoint after = Checkpoint.open(folder.resolve("my.safetensors"))) {
      Same.model(before, after);
    }
  }

  @Test
  void nothingIsReplaced() throws IOException {
    Path model = model(RandomCheckpoint.Layout.PLAIN);
    Refusal.of(() -> write(model, Optional.empty(), model), model, "already holds a model");
    Path file = model.resolve("other.safetensors");
    Refusal.of(() -> write(model, Optional.empty(), file), "config.json exists");
    Path words = Files.createDirectory(temporary.resolve("words"));
    Files.writeString(words.resolve("tokenizer.json"), "mine");
    Refusal.of(() -> write(model, Optional.empty(), words), "tokenizer.json exists");
    assertEquals(List.of("tokenizer.json"), names(words));
    assertEquals(List.of("config.json", "model.safetensors"), names(model));
  }

  @Test
  void whatIsBegunIsRemoved() throws IOException {
    Path model = model(RandomCheckpoint.Layout.PLAIN);
    Path copy = temporary.resolve("copy");
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      assertThrows(
          CancellationException.class,
          () ->
              Gpt2Safetensors.write(
                  checkpoint,
                  Optional.empty(),
                  Map.of("tokenizer.json", WORDS),
                  copy,
                  (done, total) -> {
                    if (done > total / 2) {
                      throw new CancellationException();
                    }
                  }));
    }
    assertFalse(Files.exists(copy));
    Path folder = Files.createDirectory(temporary.resolve("mine"));
    ModelFolder.rewrite(
        model,
        tensors ->
            tensors.forEach(
                (entry, data) -> {
                  if (entry.name().equals("h.1.ln_2.bias")) {
                    data[4 * 7 + 3] = 0x4f; // more than 2e9, beyond f16
                  }
                }));
    Refusal.of(() -> write(model, Optional.of(DType.F16), folder), "h.1.ln_2.bias", "E9", "F16");
    assertEquals(List.of(), names(folder));
    write(model, Optional.of(DType.BF16), folder);
  }
}
