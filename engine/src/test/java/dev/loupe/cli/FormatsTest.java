package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.LlmCFile;
import dev.loupe.weights.TensorFlowFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Models of other formats, with tokenizers of theirs, compute what the model that they hold does.
 */
class FormatsTest {
  @TempDir Path folder;
  private TinyModel model;
  private Path other;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.in(folder.resolve("model"));
    other = Files.createDirectory(folder.resolve("other"));
  }

  /** Ids, text, logprobs: all of a run. */
  private static String run(Path source) {
    Ran ran =
        Ran.loupe(
                "generate",
                "ROMEO: né",
                "-m",
                source,
                "-n",
                20,
                "--greedy",
                "--logprobs",
                3,
                "--json")
            .well();
    return ran.json().getFirst().get("tokens").toString();
  }

  @Test
  void llmC() throws IOException {
    Path file = other.resolve("model_00000100.bin");
    try (Checkpoint checkpoint = Checkpoint.open(model.folder());
        Tokenizer tokenizer = Tokenizer.open(checkpoint)) {
      LlmCFile.write(checkpoint, false, 100, file);
      List<byte[]> tokens = new ArrayList<>();
      for (int id = 0; id < tokenizer.size(); id++) {
        tokens.add(tokenizer.bytes(id));
      }
      LlmCFile.writeTokenizer(tokens, 2, other.resolve("gpt2_tokenizer.bin"));
    }
    assertEquals(run(model.folder()), run(file));
    assertEquals(run(model.folder()), run(other));
    convertsBack(file);
  }

  @Test
  void tensorFlow() throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(model.folder())) {
      TensorFlowFiles.write(checkpoint, 1, false, other);
    }
    JsonObject bpe =
        JsonParser.parseString(Files.readString(model.tokenizer()))
            .getAsJsonObject()
            .getAsJsonObject("model");
    Files.writeString(other.resolve("encoder.json"), bpe.get("vocab").toString());
    StringBuilder merges = new StringBuilder("#version: 0.2\n");
    bpe.getAsJsonArray("merges")
        .forEach(
            merge ->
                merges
                    .append(
                        merge.isJsonArray()
                            ? merge.getAsJsonArray().get(0).getAsString()
                                + " "
                                + merge.getAsJsonArray().get(1).getAsString()
                            : merge.getAsString())
                    .append('\n'));
    Files.write(other.resolve("vocab.bpe"), merges.toString().getBytes(UTF_8));
    assertEquals(run(model.folder()), run(other));
    assertEquals(run(model.folder()), run(other.resolve("model.ckpt")));
    assertEquals(run(model.folder()), run(other.resolve("model.ckpt.index")));
    convertsBack(other);
  }

  /** As a Hugging Face folder, with a tokenizer.json that was made. */
  private void convertsBack(Path source) throws IOException {
    Path back = folder.resolve("back");
    Ran.loupe("weights", "convert", source, back).well();
    assertEquals(List.of("config.json", "model.safetensors", "tokenizer.json"), Ran.names(back));
    assertEquals(run(model.folder()), run(back));
    String verified = Ran.loupe("weights", "verify", model.folder(), back).well().out();
    assertTrue(verified.startsWith("equal: 28 tensors"), verified);
  }
}
