package dev.loupe.text.files;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import java.util.ArrayList;
import java.util.List;

/**
 * How the spelling of a token in the vocabulary becomes its text: what a tokenizer.json calls its
 * decoder, for one token at a time. A token's text depends on whether it is the first of a text,
 * and on no other token; but for bytes, which make characters together.
 *
 * <p>Source: {@code src/decoders} of huggingface/tokenizers.
 */
public final class Spelling {
  /** How SentencePiece spells a space. */
  public static final String SPACE = "\u2581";

  private static final String[] CLEANED = {
    " .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m", " do not",
    " don't", " 's", "'s", " 've", "'ve", " 're", "'re"
  };

  /** A step for the text of one token. */
  private interface Step {
    String apply(String text, boolean first);
  }

  private final List<Step> steps = new ArrayList<>();
  private boolean bytes; // whether <0x41> is a byte
  private boolean firstUntilText;
  private boolean fused; // whether what follows is done to the whole text
  private String stripped = ""; // from the front of the whole text
  private int mostStripped;

  private Spelling() {}

  /**
   * Reads a decoder of any kind but the byte-level one.
   *
   * @throws IllegalArgumentException if a token's text depends on those after it
   */
  static Spelling of(JsonElement decoder) {
    Spelling spelling = new Spelling();
    if (decoder.isJsonNull()) {
      spelling.steps.add((text, first) -> first ? text : " " + text);
    }
    Steps.forEach(decoder, spelling::add);
    return spelling;
  }

  /** That of a SentencePiece model. */
  static Spelling of(SentencePieceModel model) {
    Spelling spelling = new Spelling();
    boolean drops = model.dummyPrefix() || model.removeSpaces();
    spelling.bytes = true;
    spelling.firstUntilText = model.removeSpaces();
    String unknown = model.pieces().get(model.unknown()).text();
    spelling.steps.add(
        (text, first) -> {
          if (text.equals(unknown)) {
            return model.unknownText();
          }
          boolean dropped = first && drops && text.startsWith(SPACE);
          return (dropped ? text.substring(1) : text).replace(SPACE, " ");
        });
    return spelling;
  }

  /**
   * Checks a decoder.
   *
   * @throws IllegalArgumentException if it can't be used; the message names its step
   */
  static void check(JsonElement decoder) {
    var _ = of(decoder);
  }

  private void add(JsonObject step) {
    String type = JsonValue.text(step.get("type"), "the type of a step");
    switch (type) {
      case "ByteLevel" -> {} // the token table does it
      case "ByteFallback" -> bytes = true;
      case "Fuse" -> fused = true;
      case "WordPiece" -> {
        String prefix = JsonValue.text(step.get("prefix"), "prefix");
        boolean cleanup = JsonValue.flag(step.get("cleanup"), "cleanup");
        steps.add((text, first) -> wordPiece(text, first, prefix, cleanup));
      }
      case "Metaspace" -> {
        String space = JsonValue.text(step.get("replacement"), "replacement");
        boolean dropsFirst = prepends(step);
        steps.add((text, first) -> text.replace(space, first && dropsFirst ? "" : " "));
      }
      case "Replace" -> {
        if (!(step.get("pattern") instanceof JsonObject pattern) || !pattern.has("String")) {
          throw refused("Replace with a pattern");
        }
        String from = JsonValue.text(pattern.get("String"), "String");
        String to = JsonValue.text(step.get("content"), "content");
        steps.add((text, first) -> from.isEmpty() ? text : text.replace(from, to));
      }
      case "Strip" -> strip(step);
      default -> throw refused(type);
    }
  }

  /** Whether a Metaspace step puts a space in front of a text. */
  static boolean prepends(JsonObject metaspace) {
    JsonElement scheme = metaspace.get("prepend_scheme");
    return scheme != null
        ? !JsonValue.text(scheme, "prepend_scheme").equals("never")
        : JsonValue.flag(metaspace, "add_prefix_space", true);
  }

  private void strip(JsonObject step) {
    String content = JsonValue.text(step.get("content"), "content");
    int start = JsonValue.whole(step.get("start"), "start");
    if (JsonValue.whole(step.get("stop"), "stop") > 0) {
      throw refused("Strip at the end");
    }
    if (fused) {
      stripped = content;
      mostStripped = start;
    } else {
      steps.add((text, first) -> withoutFront(text, content, start));
    }
  }

  private static String withoutFront(String text, String content, int most) {
    int at = 0;
    for (int i = 0; i < most && text.startsWith(content, at); i++) {
      at += content.length();
    }
    return text.substring(at);
  }

  private static String wordPiece(String token, boolean first, String prefix, boolean cleanup) {
    String text =
        first ? token : token.startsWith(prefix) ? token.substring(prefix.length()) : " " + token;
    if (cleanup) {
      for (int i = 0; i < CLEANED.length; i += 2) {
        text = text.replace(CLEANED[i], CLEANED[i + 1]);
      }
    }
    return text;
  }

  private static IllegalArgumentException refused(String what) {
    return new IllegalArgumentException("its decoder is %s, which can't be used".formatted(what));
  }

  /** The bytes that a token adds to a text that it does, or does not, begin. */
  public byte[] bytes(String token, boolean first) {
    int value = bytes ? byteOf(token) : -1;
    if (value >= 0) {
      return new byte[] {(byte) value};
    }
    String text = token;
    for (Step step : steps) {
      text = step.apply(text, first);
    }
    if (first && mostStripped > 0) {
      text = withoutFront(text, stripped, mostStripped);
    }
    return text.getBytes(UTF_8);
  }

  /** The byte that a token such as {@code <0x0A>} stands for, or -1. */
  private static int byteOf(String token) {
    if (token.length() != 6 || !token.startsWith("<0x") || !token.endsWith(">")) {
      return -1;
    }
    int high = Character.digit(token.charAt(3), 16);
    int low = Character.digit(token.charAt(4), 16);
    return high < 0 || low < 0 ? -1 : (high << 4) | low;
  }

  /** Whether tokens without text leave the next one the first of the text. */
  public boolean isFirstUntilText() {
    return firstUntilText;
  }
}
