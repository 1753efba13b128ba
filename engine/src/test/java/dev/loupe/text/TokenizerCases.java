package dev.loupe.text;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Checkout;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/**
 * Folders of tokenizers as models bring them, each with the ids that transformers or sentencepiece
 * gives for some texts. They are not part of this repository.
 */
public final class TokenizerCases {
  private static final Path ROOT = Checkout.ROOT.resolve("../shared/cases/tokenizers");

  private TokenizerCases() {}

  /**
   * What one text is to give.
   *
   * @param withSpecial the ids of the plain call, which may put tokens in front and behind
   */
  public record Text(String text, List<Integer> ids, List<Integer> withSpecial, String decoded) {}

  /** What stands before the ids of every text. */
  public static List<Integer> front(List<Text> texts) {
    Text text = texts.stream().filter(some -> !some.ids.isEmpty()).findFirst().orElseThrow();
    int at = Collections.indexOfSubList(text.withSpecial, text.ids);
    if (at < 0) {
      throw new AssertionError("the ids of " + text + " are not among those of the plain call");
    }
    return text.withSpecial.subList(0, at);
  }

  /** The folders, or none with the reason why they are not tried. */
  public static Stream<Path> folders() throws IOException {
    Assumptions.assumeTrue(
        Files.isDirectory(ROOT), () -> ROOT + " is not there: no tokenizers to try");
    try (Stream<Path> folders = Files.list(ROOT)) {
      return folders.filter(Files::isDirectory).sorted().toList().stream();
    }
  }

  /** What is expected of a folder. */
  public static List<Text> texts(Path folder) throws IOException {
    JsonObject json =
        JsonParser.parseString(Files.readString(folder.resolve("expected.json"))).getAsJsonObject();
    return json.getAsJsonArray("texts").asList().stream()
        .map(JsonElement::getAsJsonObject)
        .map(
            text ->
                new Text(
                    text.get("text").getAsString(),
                    ids(text, "ids"),
                    ids(text, text.has("with_special") ? "with_special" : "ids"),
                    text.get("decoded").getAsString()))
        .toList();
  }

  private static List<Integer> ids(JsonObject text, String name) {
    return text.getAsJsonArray(name).asList().stream().map(JsonElement::getAsInt).toList();
  }

  /** Copies a folder's files, but not what is expected of them. */
  public static void copy(Path from, Path to) throws IOException {
    Files.createDirectories(to);
    try (Stream<Path> files = Files.list(from)) {
      for (Path file : files.toList()) {
        if (!file.endsWith("expected.json")) {
          Files.write(to.resolve(file.getFileName()), Files.readAllBytes(file));
        }
      }
    }
  }
}
