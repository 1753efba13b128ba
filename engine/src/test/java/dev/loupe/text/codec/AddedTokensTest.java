package dev.loupe.text.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import ai.djl.huggingface.tokenizers.jni.TokenizersLibrary;
import com.google.gson.JsonParser;
import dev.loupe.text.TestData;
import dev.loupe.text.Tokenizer;
import dev.loupe.text.files.AddedToken;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class AddedTokensTest {
  private static final String ADDED =
      """
      [{"id": 1023, "content": "<|endoftext|>", "special": true},
       {"id": 1024, "content": "<|end", "special": true},
       {"id": 1025, "content": "<mask>", "special": true, "lstrip": true},
       {"id": 1026, "content": "<r>", "special": false, "rstrip": true},
       {"id": 1027, "content": "word", "special": false, "single_word": true},
       {"id": 1028, "content": "wo", "special": false},
       {"id": 1029, "content": "😀é", "single_word": true, "lstrip": true, "rstrip": true},
       {"id": 1030, "content": " x"}]
      """;
  private static final String[] PIECES = {
    "<|endoftext|>",
    "<|end",
    "oftext|>",
    " x",
    "<mask>",
    "<r>",
    "word",
    "wo",
    "rd",
    "😀é",
    "😀",
    " ",
    "  ",
    "\n",
    "\u00A0",
    "\u2003",
    "a",
    "_",
    "7",
    "é",
    ".",
    "<",
    "|>"
  };

  /** The same JSON with all flags spelled out, in the order of ids. */
  private static String withAdded(String shakespeare) {
    StringBuilder tokens = new StringBuilder();
    for (var element : JsonParser.parseString(ADDED).getAsJsonArray()) {
      var token = element.getAsJsonObject();
      for (String flag :
          new String[] {"special", "single_word", "lstrip", "rstrip", "normalized"}) {
        if (!token.has(flag)) {
          token.addProperty(flag, false);
        }
      }
      tokens.append(tokens.isEmpty() ? "" : ",").append(token);
    }
    int start = shakespeare.indexOf("\"added_tokens\": [");
    int end = shakespeare.indexOf("]", start);
    return shakespeare.substring(0, start)
        + "\"added_tokens\": ["
        + tokens
        + shakespeare.substring(end);
  }

  @Test
  void agreesWithHuggingFace(@TempDir Path folder) throws IOException {
    String json = withAdded(Files.readString(TestData.SHAKESPEARE.resolve("tokenizer.json")));
    Files.writeString(folder.resolve("tokenizer.json"), json);
    try (Tokenizer tokenizer = Tokenizer.open(folder)) { // loads the native library too
      TokenizersLibrary library = TokenizersLibrary.LIB;
      long handle = library.createTokenizerFromString(json);
      Random random = new Random(17);
      for (int round = 0; round < 5_000; round++) {
        StringBuilder text = new StringBuilder();
        for (int n = random.nextInt(8); n > 0; n--) {
          text.append(PIECES[random.nextInt(PIECES.length)]);
        }
        long encoding = library.encode(handle, text.toString(), false);
        long[] expected = library.getTokenIds(encoding);
        library.deleteEncoding(encoding);
        int[] ids = tokenizer.encode(text.toString(), true);
        assertArrayEquals(
            expected, Arrays.stream(ids).asLongStream().toArray(), () -> "|" + text + "|");
      }
      library.deleteTokenizer(handle);
    }
  }

  private static List<String> parts(String text, boolean parseSpecial) {
    List<String> parts = new ArrayList<>();
    new AddedTokens(
            List.of(
                AddedToken.plain("<s>", 1, true),
                AddedToken.plain("<s><s>", 2, true),
                AddedToken.plain("[x]", 3, false)))
        .split(text, parseSpecial, id -> parts.add("#" + id), parts::add);
    parts.removeIf(String::isEmpty);
    return parts;
  }

  @Test
  void longestFirstAndSpecialOnesOnlyWhenAskedFor() {
    assertEquals(List.of("a", "#2", "#1", "b"), parts("a<s><s><s>b", true));
    assertEquals(List.of("a<s><s><s>b"), parts("a<s><s><s>b", false));
    assertEquals(List.of("#3", "<s>", "#3", "x"), parts("[x]<s>[x]x", false));
    assertEquals(List.of(), parts("", true));
  }
}
