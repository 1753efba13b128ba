package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Where generation stops: in config.json, generation_config.json and GGUF; 37 tokens. */
class EndTokensTest {
  @TempDir Path temporary;
  private Path folder = Path.of("");

  @BeforeEach
  void model() throws IOException {
    folder =
        ModelFolder.random(temporary.resolve("m"), ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
  }

  private static List<Integer> ids(String text) {
    return text.equals("none")
        ? List.of()
        : Arrays.stream(text.split(" ", -1)).map(Integer::valueOf).toList();
  }

  private void config(String ends) throws IOException {
    ModelFolder.replace(
        ModelFolder.config(folder), "\"eos_token_id\": 36", "\"eos_token_id\": " + ends);
  }

  private void generation(String fields) throws IOException {
    Files.writeString(folder.resolve("generation_config.json"), fields);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "7             | -                                     | 7     | config.json",
        "[7, 3, 7]     | -                                     | 7 3   | config.json",
        "[7, 99]       | -                                     | 7     | config.json",
        "null          | -                                     | none  | config.json",
        "[]            | -                                     | none  | config.json",
        "7             | {\"eos_token_id\": 9}                 | 9     | generation_config.json",
        "[7, 8]        | {\"eos_token_id\": [9, 8, 0]}         | 9 8 0 | generation_config.json",
        "null          | {\"eos_token_id\": [5]}               | 5     | generation_config.json",
        "7             | {\"eos_token_id\": null}              | 7     | config.json",
        "[7, 8]        | {\"bos_token_id\": 2}                 | 7 8   | config.json",
        "7             | {\"eos_token_id\": [37, -1, 50256]}   | none  | generation_config.json",
        "[7, 8]        | {}                                    | 7 8   | config.json",
      })
  void oneSet(String config, String generation, String expected, String from) throws IOException {
    config(config);
    if (!generation.equals("-")) {
      generation(generation);
    }
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertEquals(ids(expected), checkpoint.config().eosTokenIds());
      for (int id = 0; id < 37; id++) {
        assertEquals(ids(expected).contains(id), checkpoint.config().isEnd(id));
      }
      assertEquals(from, checkpoint.endsFrom());
      assertEquals(generation.contains("bos") ? 2 : -1, checkpoint.config().bosTokenId());
      String text = Inspection.of(checkpoint).text(false);
      String shown =
          expected.equals("none")
              ? "eos none"
              : "eos %s (%s)".formatted(expected.replace(" ", ", "), from);
      assertTrue(text.contains(shown), text);
      assertEquals(from, Inspection.of(checkpoint).json().get("eos_from").getAsString());
      boolean beyond = config.contains("99") || generation.contains("37");
      assertEquals(beyond ? 1 : 0, checkpoint.notes().size(), checkpoint.notes()::toString);
    }
  }

  @Test
  void samplingDefaultsAreNamedAndLeft() throws IOException {
    generation(
        "{\"_from_model_config\": true, \"temperature\": 0.7, \"top_k\": null, \"do_sample\": true,"
            + " \"transformers_version\": \"5.1\", \"pad_token_id\": 3,"
            + " \"repetition_penalty\": Infinity}");
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertEquals(
          List.of(
              "generation_config.json sets temperature, do_sample, repetition_penalty, which Loupe"
                  + " does not take over: give them as options"),
          checkpoint.notes());
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "[]",
        "{\"eos_token_id\": \"9\"}",
        "{\"eos_token_id\": [9, 2.5]}",
        "{\"eos_token_id\": NaN}",
        "version https://git-lfs.github.com/spec/v1\n"
      })
  void refusesOtherText(String text) throws IOException {
    generation(text);
    Refusal.of(() -> Checkpoint.open(folder).close(), "generation_config.json");
  }

  @Test
  void convertKeepsThem() throws IOException {
    generation("{\"eos_token_id\": [9, 8], \"temperature\": 0.5}\n");
    ModelFolder.replace(ModelFolder.config(folder), "\"gelu\"", "\"gelu_new\"");
    ModelFolder.replace(ModelFolder.config(folder), "idx\": true", "idx\": false");
    Path copy = temporary.resolve("copy");
    Path gguf = temporary.resolve("m.gguf");
    Vocabulary vocabulary =
        new Vocabulary(List.of(new Vocabulary.Token("a", Vocabulary.Kind.NORMAL)), List.of("a b"));
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      Gpt2Safetensors.write(checkpoint, Optional.empty(), Map.of(), copy, Progress.NONE);
      Gpt2Gguf.write(checkpoint, vocabulary, GgmlType.F16, gguf, Progress.NONE);
    }
    assertArrayEquals(
        Files.readAllBytes(folder.resolve("generation_config.json")),
        Files.readAllBytes(copy.resolve("generation_config.json")));
    for (Path converted : List.of(copy, gguf)) {
      try (Checkpoint checkpoint = Checkpoint.open(converted)) {
        assertEquals(List.of(9, 8), checkpoint.config().eosTokenIds());
      }
    }
    Files.delete(copy.resolve("generation_config.json"));
    try (Checkpoint checkpoint = Checkpoint.open(copy)) {
      assertEquals(List.of(9, 8), checkpoint.config().eosTokenIds());
      assertEquals("config.json", checkpoint.endsFrom());
    }
    generation("{\"eos_token_id\": [1, 2, 3, 4]}");
    Path four = temporary.resolve("four.gguf");
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      Refusal.of(
          () -> Gpt2Gguf.write(checkpoint, vocabulary, GgmlType.F16, four, Progress.NONE),
          "any of 4 tokens");
    }
    assertFalse(Files.exists(four));
  }

  @Test
  void ggufHasThreeFields() throws IOException {
    GgufBytes file = new GgufModel(1, 32, 64, 5, 7, false).file;
    file.u32("tokenizer.ggml.bos_token_id", 8)
        .u32("tokenizer.ggml.eos_token_id", 3)
        .u32("tokenizer.ggml.eot_token_id", 3)
        .u32("tokenizer.ggml.eom_token_id", 6);
    Path path = Files.write(temporary.resolve("x.gguf"), file.bytes());
    try (Checkpoint checkpoint = Checkpoint.open(path)) {
      assertEquals(List.of(3, 6), checkpoint.config().eosTokenIds());
      assertEquals(-1, checkpoint.config().bosTokenId());
      assertEquals("x.gguf", checkpoint.endsFrom());
      assertTrue(
          checkpoint.notes().stream().anyMatch(note -> note.contains("bos_token_id 8 is beyond")),
          checkpoint.notes()::toString);
    }
  }
}
