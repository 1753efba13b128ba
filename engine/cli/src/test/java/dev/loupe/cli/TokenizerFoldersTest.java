package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.text.Tokenizer;
import dev.loupe.text.TokenizerCases;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Tokenizers as models bring them, beside random weights. */
class TokenizerFoldersTest {
  private static final String FOLDERS = "dev.loupe.text.TokenizerCases#folders";

  /** What a GGUF file of GPT-2 can carry; the others are refused. */
  private static final Set<String> IN_GGUF =
      Set.of("slow-added-decoder", "slow-added-json", "fast-template-bos", "fast-split-regex");

  @TempDir private Path temporary;

  private Path model(Path tokenizer) throws IOException {
    Path folder = temporary.resolve("model");
    Gpt2Config config =
        new Gpt2Config(1, 2, 12, 160, 1031, 20, Activation.GELU_NEW, 1e-5f, true, false, -1, -1);
    RandomCheckpoint.write(config, 5, folder, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    TokenizerCases.copy(tokenizer, folder);
    return folder;
  }

  private static List<Integer> ids(JsonObject run) {
    return run.getAsJsonArray("tokens").asList().stream()
        .map(JsonElement::getAsJsonObject)
        .map(token -> token.get("id").getAsInt())
        .toList();
  }

  private static List<Integer> joined(List<Integer> front, List<Integer> ids) {
    List<Integer> all = new ArrayList<>(front);
    all.addAll(ids);
    return all;
  }

  /** On some of the texts: {@code TokenizerCasesTest} has the ids of all of them. */
  @ParameterizedTest
  @MethodSource(FOLDERS)
  void commandLine(Path tokenizer) throws IOException {
    commandLine(tokenizer, 6);
  }

  @ParameterizedTest
  @MethodSource(FOLDERS)
  @Tag("sweep")
  void commandLineOnEveryText(Path tokenizer) throws IOException {
    commandLine(tokenizer, 1);
  }

  private void commandLine(Path tokenizer, int step) throws IOException {
    Path model = model(tokenizer);
    List<TokenizerCases.Text> texts = TokenizerCases.texts(tokenizer);
    List<Integer> front = TokenizerCases.front(texts);
    for (int i = 0; i < texts.size(); i += step) {
      TokenizerCases.Text text = texts.get(i);
      if (text.ids().isEmpty() && front.isEmpty()) {
        continue; // an empty prompt is another matter
      }
      Ran ran = read(model, text.text());
      assertEquals(joined(front, text.ids()), ids(ran.json().getFirst()), text.text());
      assertEquals(
          !front.isEmpty(),
          ran.err().contains("[--no-bos puts nothing in front of a text]"),
          ran.err());
      if (!text.ids().isEmpty()) {
        JsonObject own = read(model, text.text(), "--no-bos").json().getFirst();
        assertEquals(text.ids(), ids(own));
        assertDecoded(text.decoded(), own);
      }
    }
  }

  /**
   * The bytes of the tokens are the text, but for the space that the first of a text may lose;
   * their places are places in the text.
   */
  private static void assertDecoded(String expected, JsonObject run) {
    StringBuilder hex = new StringBuilder();
    JsonArray span = new JsonArray();
    for (JsonElement token : run.getAsJsonArray("tokens")) {
      hex.append(token.getAsJsonObject().get("bytes_hex").getAsString());
      span = token.getAsJsonObject().getAsJsonArray("char_span");
    }
    String joined = new String(HexFormat.of().parseHex(hex), UTF_8);
    boolean isShorter = joined.equals(" " + expected);
    assertEquals(expected, isShorter ? joined.substring(1) : joined);
    assertEquals(expected.codePointCount(0, expected.length()), span.get(1).getAsInt());
  }

  private static Ran read(Path model, String text, Object... more) {
    List<Object> arguments = new ArrayList<>(List.of("attention", "-", "-m", model));
    arguments.addAll(List.of("--special", "--json", "--backend", "cpu"));
    arguments.addAll(Arrays.asList(more));
    return Ran.reading(text.getBytes(UTF_8), arguments.toArray()).well();
  }

  @ParameterizedTest
  @MethodSource(FOLDERS)
  void inspectSaysWhatIsInForce(Path tokenizer) throws IOException {
    Path model = model(tokenizer);
    JsonObject said = Ran.loupe("weights", "inspect", model, "--json").well().json().getFirst();
    JsonObject settings = said.getAsJsonObject("tokenizer").getAsJsonObject("settings");
    assertTrue(settings.has("vocabulary"), settings::toString);
    boolean hasFront = !TokenizerCases.front(TokenizerCases.texts(tokenizer)).isEmpty();
    assertEquals(hasFront, settings.has("in front of a text"), settings::toString);
    String text = Ran.loupe("weights", "inspect", model).well().out();
    for (String name : settings.keySet()) {
      assertTrue(text.contains(settings.get(name).getAsString()), text);
    }
  }

  @ParameterizedTest
  @MethodSource(FOLDERS)
  void convertedToAFolder(Path tokenizer) throws IOException {
    Path copy = temporary.resolve("copy");
    Ran.loupe("weights", "convert", model(tokenizer), copy).well();
    assertSame(tokenizer, Tokenizer.open(Checkpoint.open(copy), Optional.empty()));
    for (String file : Ran.names(tokenizer)) {
      assertEquals(!file.equals("expected.json"), Files.exists(copy.resolve(file)), file);
    }
  }

  @ParameterizedTest
  @MethodSource(FOLDERS)
  void convertedToAFile(Path tokenizer) throws IOException {
    Path copy = Files.createDirectory(temporary.resolve("copy")).resolve("copy.safetensors");
    Ran.loupe("weights", "convert", model(tokenizer), copy, "--dtype", "bf16").well();
    assertSame(tokenizer, Tokenizer.open(Checkpoint.open(copy), Optional.empty()));
  }

  @ParameterizedTest
  @MethodSource(FOLDERS)
  void convertedToGguf(Path tokenizer) throws IOException {
    Path copy = temporary.resolve("copy.gguf");
    Ran ran = Ran.loupe("weights", "convert", model(tokenizer), copy);
    String name = String.valueOf(tokenizer.getFileName());
    if (!IN_GGUF.contains(name)) {
      ran.refused(3, "its tokenizer has", "can't carry");
      assertFalse(Files.exists(copy));
      return;
    }
    ran.well();
    String bytes = new String(Files.readAllBytes(copy), ISO_8859_1);
    assertTrue(bytes.contains("general.type\b\0\0\0\5\0\0\0\0\0\0\0model"));
    assertTrue(bytes.contains("general.size_label\b\0\0\0\3\0\0\0\0\0\0\00016K"));
    assertEquals(name.startsWith("slow"), bytes.contains("unknown_token_id\4\0\0\0\u00FF\3\0\0"));
    try (Checkpoint checkpoint = Checkpoint.open(copy)) {
      assertSame(tokenizer, Tokenizer.carriedBy(checkpoint));
    }
  }

  private static void assertSame(Path tokenizer, Tokenizer opened) throws IOException {
    try (opened) {
      List<TokenizerCases.Text> texts = TokenizerCases.texts(tokenizer);
      for (TokenizerCases.Text text : texts) {
        int[] ids = opened.encodePrompt(text.text(), true, true);
        assertEquals(
            joined(TokenizerCases.front(texts), text.ids()),
            Arrays.stream(ids).boxed().toList(),
            text.text());
        int[] own = opened.encode(text.text(), true);
        assertEquals(text.decoded(), opened.decode(own, true));
      }
    }
  }
}
