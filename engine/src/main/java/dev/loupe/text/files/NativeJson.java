package dev.loupe.text.files;

import com.google.gson.JsonElement;
import java.util.BitSet;
import java.util.List;
import java.util.Map;

/**
 * The tokenizer.json to give to the native library: no truncation, padding, dropout or
 * post-processing, and of the added tokens only those that are looked for in normalized text. The
 * others are left out because the library always finds special ones in user text, and because it
 * numbers those beyond the vocabulary itself instead of taking the file's ids.
 */
public final class NativeJson {
  private final TokenizerJson tokenizer;
  private final BitSet hidden;
  private final StringBuilder out = new StringBuilder(1 << 21);

  private NativeJson(TokenizerJson tokenizer, BitSet hidden) {
    this.tokenizer = tokenizer;
    this.hidden = hidden;
  }

  /**
   * Writes it.
   *
   * @param hidden ids of the vocabulary whose spelling must not be found in a text
   */
  public static String of(TokenizerJson tokenizer, BitSet hidden) {
    return new NativeJson(tokenizer, hidden).write();
  }

  /** Added tokens that only the native library can find: in text that it normalized. */
  public static List<AddedToken> tokens(TokenizerJson tokenizer) {
    return tokenizer.normalizer.isJsonNull()
        ? List.of()
        : tokenizer.added().stream()
            .filter(token -> token.normalized() && !token.special())
            .toList();
  }

  /**
   * Ids of {@link #tokens} that the model's vocabulary lacks, in the order in which the library
   * numbers them behind it.
   */
  public static int[] ids(TokenizerJson tokenizer) {
    return tokens(tokenizer).stream()
        .filter(token -> !tokenizer.vocab().containsKey(token.content()))
        .mapToInt(AddedToken::id)
        .toArray();
  }

  private String write() {
    out.append("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    String separator = "";
    int next = 0;
    for (AddedToken token : tokens(tokenizer)) {
      // the id has no meaning there but must be given
      out.append(separator).append("{\"id\":").append(next++).append(",\"content\":");
      quote(token.content());
      out.append(",\"single_word\":").append(token.singleWord());
      out.append(",\"lstrip\":").append(token.lstrip());
      out.append(",\"rstrip\":").append(token.rstrip());
      out.append(",\"normalized\":true,\"special\":false}");
      separator = ",";
    }
    out.append("],\"normalizer\":").append(tokenizer.normalizer);
    out.append(",\"pre_tokenizer\":").append(tokenizer.preTokenizer);
    out.append(",\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":");
    quote(tokenizer.model.type());
    for (Map.Entry<String, JsonElement> entry : tokenizer.settings().entrySet()) {
      out.append(',');
      quote(entry.getKey());
      out.append(':').append(entry.getValue());
    }
    out.append(",\"vocab\":");
    if (tokenizer.model == TokenizerJson.Model.UNIGRAM) {
      appendPieces();
    } else {
      appendVocab();
    }
    if (tokenizer.model == TokenizerJson.Model.BPE) {
      appendMerges();
    }
    return out.append("}}").toString();
  }

  private void appendPieces() {
    String[] pieces = new String[tokenizer.scores().size()];
    tokenizer.vocab().forEach((piece, id) -> pieces[id] = piece);
    out.append('[');
    for (int id = 0; id < pieces.length; id++) {
      out.append(id == 0 ? "[" : ",[");
      quote(hidden.get(id) ? unspeakable(id) : pieces[id]);
      out.append(',').append(tokenizer.scores().get(id)).append(']');
    }
    out.append(']');
  }

  private void appendVocab() {
    out.append('{');
    String separator = "";
    for (Map.Entry<String, Integer> entry : tokenizer.vocab().entrySet()) {
      int id = entry.getValue();
      out.append(separator);
      quote(hidden.get(id) ? unspeakable(id) : entry.getKey());
      out.append(':').append(id);
      separator = ",";
    }
    if (ids(tokenizer).length > 0) { // which the library numbers from the count of tokens on
      BitSet used = new BitSet();
      tokenizer.vocab().values().forEach(used::set);
      int size = tokenizer.modelSize();
      for (int id = used.nextClearBit(0); id < size; id = used.nextClearBit(id + 1)) {
        out.append(separator);
        quote(unspeakable(id));
        out.append(':').append(id);
        separator = ",";
      }
    }
    out.append('}');
  }

  private void appendMerges() {
    out.append(",\"merges\":[");
    String separator = "";
    for (String merge : tokenizer.merges()) {
      out.append(separator);
      quote(merge);
      separator = ",";
    }
    out.append(']');
  }

  /** Text that nobody writes: it has characters that Unicode reserves for a program's own use. */
  private static String unspeakable(int id) {
    return "\uFDD0" + id + "\uFDD1";
  }

  private void quote(String text) {
    out.append('"');
    int done = 0; // appended in stretches: nearly all tokens need no escape
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c < ' ' || c == '"' || c == '\\') {
        out.append(text, done, i).append("\\u00");
        out.append(Character.forDigit(c >> 4, 16)).append(Character.forDigit(c & 15, 16));
        done = i + 1;
      }
    }
    out.append(text, done, text.length()).append('"');
  }
}
