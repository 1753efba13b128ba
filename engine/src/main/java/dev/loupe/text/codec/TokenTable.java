package dev.loupe.text.codec;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.text.files.AddedToken;
import dev.loupe.text.files.Spelling;
import dev.loupe.weights.vocabulary.ByteAlphabet;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/** What every id of a tokenizer stands for: plain tables, checked when they are made. */
public final class TokenTable {
  /** Ids beyond this are taken for a broken file, not for a reason to allocate tables. */
  static final int MAX_ID = Vocabulary.MOST_TOKENS;

  private final @Nullable String[] raw; // [max id + 1], null where there is a gap
  private final Map<String, Integer> ids; // raw spelling -> id
  private final BitSet literal = new BitSet(); // ids whose raw spelling is their text
  private final BitSet special = new BitSet();
  private final BitSet bytes = new BitSet(256); // bytes that have a token of their own
  private final @Nullable Spelling spelling; // null where tokens are spelled in bytes

  /**
   * @param bpe raw spelling to id of the model's vocabulary
   * @param added tokens of literal text; theirs may be ids of {@code bpe} or new ones
   * @param spelling what the vocabulary's spellings stand for; null if they are in {@link
   *     ByteAlphabet}, but for the added tokens among them
   * @throws IllegalArgumentException if ids are negative, beyond {@link #MAX_ID} or used twice, or
   *     if a token is neither added nor spelled in the byte alphabet; the message names the token
   */
  public TokenTable(Map<String, Integer> bpe, List<AddedToken> added, @Nullable Spelling spelling) {
    this.spelling = spelling;
    ids = new HashMap<>(bpe);
    raw = new String[1 + Math.max(maxId(bpe), maxId(added))];
    for (AddedToken token : added) {
      place(token.content(), token.id());
      literal.set(token.id());
      special.set(token.id(), token.special());
      Integer id = ids.put(token.content(), token.id());
      if (id != null && id != token.id()) {
        throw new IllegalArgumentException(
            "token \"%s\" has two ids, %d and %d".formatted(token.content(), id, token.id()));
      }
    }
    bpe.forEach(this::placeSpelled);
  }

  private static int maxId(Map<String, Integer> bpe) {
    int max = -1;
    for (Map.Entry<String, Integer> entry : bpe.entrySet()) {
      max = Math.max(max, checked(entry.getKey(), entry.getValue()));
    }
    if (max < 0) {
      throw new IllegalArgumentException("the vocabulary is empty");
    }
    return max;
  }

  private static int maxId(List<AddedToken> added) {
    int max = -1;
    for (AddedToken token : added) {
      max = Math.max(max, checked(token.content(), token.id()));
    }
    return max;
  }

  private static int checked(String token, int id) {
    if (id < 0 || id > MAX_ID) {
      throw new IllegalArgumentException(
          "token \"%s\" has id %d, which is not between 0 and %d".formatted(token, id, MAX_ID));
    }
    return id;
  }

  private void placeSpelled(String token, int id) {
    boolean added = literal.get(id) && token.equals(raw[id]);
    if (!added) {
      place(token, id);
    }
    if (spelling != null) {
      return;
    }
    for (int i = 0; i < token.length() && !added; i++) {
      if (ByteAlphabet.byteOf(token.charAt(i)) < 0) {
        throw new IllegalArgumentException(
            "token \"%s\" (id %d) has U+%04X, which is not in GPT-2's byte alphabet"
                .formatted(token, id, token.codePointAt(i)));
      }
    }
    if (token.length() == 1 && ByteAlphabet.byteOf(token.charAt(0)) >= 0) {
      bytes.set(ByteAlphabet.byteOf(token.charAt(0)));
    }
  }

  private void place(String token, int id) {
    if (raw[id] != null) {
      throw new IllegalArgumentException(
          "id %d stands for two tokens, \"%s\" and \"%s\"".formatted(id, raw[id], token));
    }
    raw[id] = token;
  }

  public int size() {
    return raw.length;
  }

  public boolean contains(int id) {
    return id >= 0 && id < raw.length && raw[id] != null;
  }

  public boolean isSpecial(int id) {
    return id >= 0 && special.get(id);
  }

  public boolean isLiteral(int id) {
    return id >= 0 && literal.get(id);
  }

  public OptionalInt idOf(String token) {
    Integer id = ids.get(token);
    return id == null ? OptionalInt.empty() : OptionalInt.of(id);
  }

  public String raw(int id) {
    String token = id >= 0 && id < raw.length ? raw[id] : null;
    if (token == null) {
      throw new IllegalArgumentException(
          "no token has id %d: the tokenizer's ids end at %d".formatted(id, raw.length - 1));
    }
    return token;
  }

  /** The ids below {@code rows} that stand for a token. */
  public BitSet ids(int rows) {
    BitSet all = new BitSet();
    for (int id = 0; id < Math.min(size(), rows); id++) {
      all.set(id, contains(id));
    }
    return all;
  }

  /** The most bytes that a token within a text stands for; at least 1. */
  public int longest() {
    int longest = 1;
    for (int id = 0; id < size(); id++) {
      longest = Math.max(longest, contains(id) ? bytes(id, false).length : 0);
    }
    return longest;
  }

  /** Whether after a token that began a text and added nothing the next one begins it. */
  public boolean isFirstUntilText() {
    return spelling != null && spelling.isFirstUntilText();
  }

  /** The bytes of a token that does, or does not, begin a text. */
  public byte[] bytes(int id, boolean first) {
    String token = raw(id);
    if (spelling != null) {
      return spelling.bytes(token, first);
    }
    if (literal.get(id)) {
      return token.getBytes(UTF_8);
    }
    byte[] result = new byte[token.length()];
    for (int i = 0; i < result.length; i++) {
      result[i] = (byte) ByteAlphabet.byteOf(token.charAt(i));
    }
    return result;
  }

  /**
   * The first byte of {@code text} in UTF-8 that no token stands for, or -1. BPE without an unknown
   * token drops such bytes without a word.
   */
  int unknownByte(String text) {
    if (bytes.cardinality() == 256) {
      return -1;
    }
    for (byte b : text.getBytes(UTF_8)) {
      if (!bytes.get(b & 0xFF)) {
        return b & 0xFF;
      }
    }
    return -1;
  }
}
