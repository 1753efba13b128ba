package dev.loupe.text.codec;

import dev.loupe.text.files.AddedToken;
import dev.loupe.text.files.FoundTokenizer;
import dev.loupe.text.files.NativeJson;
import dev.loupe.text.files.TokenizerJson;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Cuts a text into ids: finds added tokens, follows the settings beside the vocabulary, and gives
 * what is between the added tokens to the vocabulary's encoder.
 */
public final class TextEncoder implements AutoCloseable {
  private final TokenTable table;
  private final AddedTokens ofText; // looked for in a text as it is
  private final AddedTokens ofNormalized; // looked for after that
  private final Encoder encoder;
  private final @Nullable Encoder laterEncoder; // of parts that a text does not begin with
  private final @Nullable SentencePieceText sentencePiece;
  private final UnaryOperator<String> before;
  private final boolean everyPart;
  private final boolean spellsBytes; // and leaves out what has no token, without a word
  private final int modelSize;
  private final int[] nativeIds; // of the numbers that the encoder gives from there on

  /**
   * @param found its JSON becomes that of the encoder for later parts of a text
   * @param table of its tokens
   * @throws CheckpointException if the native library doesn't load
   * @throws IllegalArgumentException if it can't be used; the message says why
   */
  public TextEncoder(FoundTokenizer found, TokenTable table) throws CheckpointException {
    TokenizerJson json = found.json();
    SentencePieceModel pieces = found.sentencePiece();
    this.table = table;
    sentencePiece = pieces == null ? null : new SentencePieceText(pieces);
    List<AddedToken> first = new ArrayList<>();
    List<AddedToken> second = new ArrayList<>();
    List<AddedToken> byLibrary = NativeJson.tokens(json);
    for (AddedToken token : json.added()) {
      if (!byLibrary.contains(token)) {
        (token.normalized() && !json.normalizes() ? second : first).add(token);
      }
    }
    ofText = new AddedTokens(first);
    ofNormalized = new AddedTokens(second);
    before = found.before();
    everyPart = found.everyPart();
    boolean bpe = !json.isWithoutMerges();
    int unknown = json.unknown();
    spellsBytes =
        bpe && json.isByteLevel() && json.model() == TokenizerJson.Model.BPE && unknown < 0;
    modelSize = json.modelSize();
    nativeIds = NativeJson.ids(json);
    encoder =
        bpe
            ? new NativeTokenizer(
                NativeJson.of(json, hidden(json, pieces)), unknown, byteIds(json, pieces))
            : new LongestTokens(json.vocab());
    laterEncoder = json.beLater() ? later(json) : null;
  }

  @SuppressWarnings("MustBeClosedChecker")
  private Encoder later(TokenizerJson json) throws CheckpointException {
    boolean made = false;
    try {
      Encoder later = new NativeTokenizer(NativeJson.of(json, new BitSet()));
      made = true;
      return later;
    } finally {
      if (!made) {
        encoder.close();
      }
    }
  }

  /** Ids whose spelling is no text: SentencePiece finds only some kinds of pieces in a text. */
  private static BitSet hidden(TokenizerJson json, @Nullable SentencePieceModel pieces) {
    BitSet hidden = new BitSet();
    for (int id = 0; pieces != null && id < pieces.pieces().size(); id++) {
      boolean isText =
          switch (pieces.pieces().get(id).type()) {
            case NORMAL, USER_DEFINED -> true;
            // of BPE the library looks them up by their names, and finds them in no text
            case BYTE, UNKNOWN -> json.model() == TokenizerJson.Model.BPE;
            case CONTROL, UNUSED -> false;
          };
      hidden.set(id, !isText);
    }
    return hidden;
  }

  /** The ids of a SentencePiece model's bytes, where the library can't spell with them itself. */
  private static int[] byteIds(TokenizerJson json, @Nullable SentencePieceModel pieces) {
    if (pieces == null || !pieces.byteFallback() || json.model() == TokenizerJson.Model.BPE) {
      return new int[0];
    }
    int[] ids = new int[256];
    for (int b = 0; b < ids.length; b++) {
      Integer id = json.vocab().get("<0x%02X>".formatted(b));
      if (id == null) {
        throw new IllegalArgumentException("it spells in bytes and has none for %02X".formatted(b));
      }
      ids[b] = id;
    }
    return ids;
  }

  /** {@code text} with {@code mark} within each spelling of a special token. */
  public String marked(String text, char mark) {
    return ofNormalized.marked(ofText.marked(text, mark), mark);
  }

  /**
   * The ids of {@code text}; none for the empty string. A lone surrogate counts as U+FFFD.
   *
   * @param parseSpecial whether special tokens are found in the text; otherwise they are plain
   *     characters. Added tokens that aren't special always are.
   * @param mark what is no part of the text, if there is such a thing: where it stands within the
   *     spelling of a special token, that is plain characters
   * @throws IllegalArgumentException if the text has a byte that the vocabulary can't spell
   * @throws IllegalStateException if closed
   */
  public int[] encode(String text, boolean parseSpecial, @Nullable String mark) {
    IntStream.Builder ids = IntStream.builder();
    boolean[] begun = {false};
    ofText.split(
        wellFormed(text),
        parseSpecial,
        id -> {
          begun[0] = true;
          ids.accept(id);
        },
        part -> {
          if (!part.isEmpty()) {
            encodePart(part, parseSpecial, mark, !begun[0], ids);
            begun[0] = true;
          }
        });
    return ids.build().toArray();
  }

  private void encodePart(
      String part,
      boolean parseSpecial,
      @Nullable String mark,
      boolean isFirst,
      IntStream.Builder ids) {
    String changed = before.apply(part);
    boolean special = parseSpecial;
    if (sentencePiece != null) {
      if (mark != null && changed.contains(mark)) { // which would not come through unchanged
        changed = changed.replace(mark, "");
        special = false;
      }
      changed = sentencePiece.normalize(changed, isFirst || everyPart);
    }
    boolean[] begun = {!isFirst};
    ofNormalized.split(
        changed,
        special,
        id -> {
          begun[0] = true;
          ids.accept(id);
        },
        plain -> {
          if (!plain.isEmpty()) {
            encodePlain(mark == null ? plain : plain.replace(mark, ""), begun[0], ids);
            begun[0] = true;
          }
        });
  }

  private void encodePlain(String text, boolean isLater, IntStream.Builder ids) {
    int byteWithout = spellsBytes ? table.unknownByte(text) : -1;
    if (byteWithout >= 0) {
      throw new IllegalArgumentException(
          "the tokenizer has no token for byte %02X of the text".formatted(byteWithout));
    }
    Encoder responsible = isLater && laterEncoder != null ? laterEncoder : encoder;
    for (long id : responsible.encode(text)) {
      ids.accept(id < modelSize ? (int) id : nativeIds[(int) id - modelSize]);
    }
  }

  /** {@code text} with U+FFFD for surrogates that are no half of a pair, which UTF-8 can't hold. */
  private static String wellFormed(String text) {
    if (text.codePoints().noneMatch(TextEncoder::isSurrogate)) {
      return text;
    }
    int[] codePoints = text.codePoints().map(c -> isSurrogate(c) ? 0xFFFD : c).toArray();
    return new String(codePoints, 0, codePoints.length);
  }

  private static boolean isSurrogate(int codePoint) {
    return codePoint >= Character.MIN_SURROGATE && codePoint <= Character.MAX_SURROGATE;
  }

  /** Frees the native memory, once encodings under way are done. May be called again. */
  @Override
  public void close() {
    encoder.close();
    if (laterEncoder != null) {
      laterEncoder.close();
    }
  }
}
