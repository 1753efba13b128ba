package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.model.Golden;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Models that can't be used: exit code 3, one sentence, and no file begun. */
class BrokenModelTest {
  @TempDir Path folder;
  private Path made;
  private TinyModel model;

  @BeforeEach
  void make() throws IOException {
    made = Files.createDirectory(folder.resolve("made"));
    model = TinyModel.in(folder.resolve("model"));
  }

  private void refused(Object... words) throws IOException {
    refusedFrom(model.folder(), words);
  }

  private void refusedFrom(Path source, Object... words) throws IOException {
    Ran.loupe("generate", "a", "-n", 2, "-m", source, "--attention", made.resolve("maps.npz"))
        .refused(ExitCode.BAD_INPUT, words);
    Ran.loupe("attention", "a", "-m", source, "--attention", made.resolve("maps.npz"))
        .refused(ExitCode.BAD_INPUT, words);
    assertEquals(List.of(), Ran.names(made));
  }

  private void inspectRefused(Object... words) throws IOException {
    refused(words);
    Ran.loupe("weights", "inspect", model.folder()).refused(ExitCode.BAD_INPUT, words);
  }

  @Test
  void theModelIsSoundBeforeItIsBroken() {
    Ran.loupe("generate", "a", "-n", 2, "-m", model.folder(), "--attention", made.resolve("a.npz"))
        .well();
  }

  @Test
  void thereIsNoSuchModel() throws IOException {
    Path missing = folder.resolve("nothing");
    refusedFrom(missing, missing, "does not exist");
    refusedFrom(made, made, "holds no model.safetensors");
    Ran.loupe("weights", "inspect", missing).refused(ExitCode.BAD_INPUT, missing, "does not exist");
  }

  @Test
  void theFileIsCutShort() throws IOException {
    byte[] all = Files.readAllBytes(model.weights());
    Files.write(model.weights(), Arrays.copyOf(all, all.length - 1));
    inspectRefused(model.weights(), "cut short", "again");
    Files.write(model.weights(), Arrays.copyOf(all, 100));
    inspectRefused(model.weights(), "header");
    Files.write(model.weights(), new byte[0]);
    inspectRefused(model.weights(), "empty");
  }

  @ParameterizedTest
  @ValueSource(longs = {-1, 1L << 62, 1 << 30, 99_999_999, 0, 1})
  void theHeaderLiesAboutItsLength(long length) throws IOException {
    byte[] all = Files.readAllBytes(model.weights());
    ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN).putLong(length);
    Files.write(model.weights(), all);
    inspectRefused(model.weights());
  }

  @Test
  void theHeaderLiesAboutATensorsBytes() throws IOException {
    model.header(
        header -> {
          JsonArray offsets = header.getAsJsonObject("ln_f.weight").getAsJsonArray("data_offsets");
          offsets.set(1, new com.google.gson.JsonPrimitive(1L << 40));
        });
    inspectRefused(model.weights(), "ln_f.weight");
  }

  @Test
  void theFileIsAGitLfsPointer() throws IOException {
    Files.writeString(
        model.weights(),
        """
        version https://git-lfs.github.com/spec/v1
        oid sha256:248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707
        size 548105171
        """);
    inspectRefused(model.weights(), "Git LFS", "git lfs pull");
  }

  @Test
  void aTensorIsMissing() throws IOException {
    model.header(header -> header.add("h.1.mlp.extra", header.remove("h.1.mlp.c_fc.bias")));
    inspectRefused(model.weights(), "no tensor h.1.mlp.c_fc.bias");
  }

  @Test
  void aTensorHasAnotherShape() throws IOException {
    shape("h.0.ln_1.weight", 8, 8);
    inspectRefused("h.0.ln_1.weight", "[8, 8]", "[64]");
  }

  @Test
  void aTensorIsTransposed() throws IOException {
    shape("h.0.mlp.c_fc.weight", 256, 64);
    inspectRefused("h.0.mlp.c_fc.weight", "[256, 64]", "[64, 256]", "transposed");
  }

  private void shape(String tensor, int rows, int columns) throws IOException {
    model.header(
        header -> {
          JsonArray shape = new JsonArray();
          shape.add(rows);
          shape.add(columns);
          JsonObject entry = header.getAsJsonObject(tensor);
          entry.add("shape", shape);
        });
  }

  @Test
  void theConfigDoesNotDivide() throws IOException {
    model.config("\"n_head\": 2", "\"n_head\": 3");
    inspectRefused(model.config(), "n_embd 64", "n_head 3");
  }

  @Test
  void theActivationIsUnknown() throws IOException {
    model.config("gelu_new", "swiglu");
    inspectRefused(model.config(), "swiglu", "gelu_new");
  }

  @Test
  void theConfigIsNoJson() throws IOException {
    Files.writeString(model.config(), "{\"n_layer\": 2,");
    inspectRefused(model.config());
    Files.delete(model.config());
    inspectRefused("config.json");
  }

  @Test
  void theConfigHasAnotherVocabulary() throws IOException {
    model.config("\"vocab_size\": 1024", "\"vocab_size\": 2000");
    inspectRefused(model.weights(), "1024 rows", "vocab_size 2000");
  }

  @Test
  void theTokenizerHasAnotherVocabulary() throws IOException {
    Path gpt2 = Golden.DEMO_MODEL.resolveSibling("gpt2").resolve("tokenizer.json");
    Files.write(model.tokenizer(), Files.readAllBytes(gpt2));
    refused(model.folder(), "1024", "50257", "do not belong together");
  }

  @Test
  void thereIsNoTokenizer() throws IOException {
    Files.delete(model.tokenizer());
    refused(model.folder(), "tokenizer.json");
  }

  @Test
  void theTokenizerIsMalformed() throws IOException {
    String text = Files.readString(model.tokenizer());
    Files.writeString(model.tokenizer(), text.substring(0, text.length() / 2));
    refused(model.tokenizer());
    Files.writeString(model.tokenizer(), "{}");
    refused(model.tokenizer());
  }

  @Test
  void aWeightIsNotANumber() throws IOException {
    model.poke("h.1.attn.c_attn.weight", 77, Float.NaN);
    refused(model.folder(), "h.1.attn.c_attn.weight", "NaN", "77");
  }

  @Test
  void aWeightIsInfinite() throws IOException {
    model.poke("ln_f.bias", 3, Float.POSITIVE_INFINITY);
    refused(model.folder(), "ln_f.bias", "Infinity", "3");
  }
}
