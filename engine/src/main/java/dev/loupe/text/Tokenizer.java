package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.CheckpointException;
import dev.loupe.weights.HfTokenizer;
import dev.loupe.weights.Vocabulary;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.IntStream;

/**
 * Text to token ids and back: GPT-2's byte-level BPE, encoded by Hugging Face's tokenizers library
 * and decoded by a table of our own; or one token for each character, of models that were trained
 * so.
 *
 * <p>Safe for use by several threads; closing waits for encodings under way. Only encoding needs an
 * open tokenizer: what ids stand for can still be asked after {@link #close}.
 *
 * <p>Sources: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section
 * 2.2, and OpenAI's gpt-2, src/encoder.py.
 */
public final class Tokenizer implements AutoCloseable {
  private final TokenTable table;
  private final BitSet ids;
  private final AddedTokens added;
  private final Encoder encoder;
  private final boolean spellsBytes; // and leaves out what has no token, without a word
  private final Optional<String> whyNoText;
  private final long longestToken; // bytes

  /**
   * @param rows of the model's vocabulary
   */
  private Tokenizer(TokenizerJson json, int rows) throws CheckpointException {
    table = new TokenTable(json.vocab(), json.added());
    ids = ids(table, rows);
    whyNoText = Optional.empty();
    added = new AddedTokens(json.added());
    boolean bpe = !json.isWithoutMerges();
    spellsBytes = bpe && !json.hasUnknownToken();
    longestToken =
        (bpe && !spellsBytes) || added.swallowsSpace() ? Integer.MAX_VALUE : longest(table);
    encoder = bpe ? new NativeTokenizer(json.forNativeLibrary()) : new LongestTokens(json.vocab());
  }

  private Tokenizer(int rows, String whyNoText) {
    Map<String, Integer> numbers = new HashMap<>();
    for (int id = 0; id < rows; id++) {
      numbers.put(Integer.toString(id), id);
    }
    table = new TokenTable(numbers, List.of());
    ids = ids(table, rows);
    added = new AddedTokens(List.of());
    encoder = new NoText(whyNoText);
    spellsBytes = false;
    longestToken = Integer.MAX_VALUE;
    this.whyNoText = Optional.of(whyNoText);
  }

  private static long longest(TokenTable table) {
    long longest = 1;
    for (int id = 0; id < table.size(); id++) {
      longest = Math.max(longest, table.contains(id) ? table.bytes(id).length : 0);
    }
    return longest;
  }

  private static BitSet ids(TokenTable table, int rows) {
    BitSet ids = new BitSet();
    for (int id = 0; id < Math.min(table.size(), rows); id++) {
      ids.set(id, table.contains(id));
    }
    return ids;
  }

  /**
   * One for a model whose tokens are known by their ids alone. Each id is a token, spelled and
   * labelled as its decimal number; none adds anything to a text.
   *
   * @param rows how many ids there are
   * @param why there is no text, for the exception of {@link #encode}
   */
  public static Tokenizer ofIds(int rows, String why) {
    return new Tokenizer(rows, why);
  }

  /**
   * Opens the tokenizer in {@code folder}: its tokenizer.json, or vocab.json with merges.txt.
   *
   * @throws CheckpointException if there is none, if it is broken or not a byte-level BPE, or if
   *     the native library doesn't load on this machine
   */
  public static Tokenizer open(Path folder) throws CheckpointException {
    return of(TokenizerJson.read(folder), folder, Integer.MAX_VALUE);
  }

  /**
   * Opens a checkpoint's tokenizer: the files beside the weights, else what the weights' own file
   * carries, or names. Its tokens are those that the model has rows for.
   *
   * @param gpt2 where GPT-2's own tokenizer is, for a checkpoint that names it
   * @throws CheckpointException as {@link #open(Path)}
   */
  public static Tokenizer open(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    return of(read(checkpoint, gpt2), checkpoint.source(), checkpoint.config().vocabSize());
  }

  private static Path folderOf(Checkpoint checkpoint) {
    Path source = checkpoint.source();
    Path parent = source.toAbsolutePath().getParent();
    return Files.isDirectory(source) || parent == null ? source : parent;
  }

  private static TokenizerJson read(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    Path source = checkpoint.source();
    Path folder = folderOf(checkpoint);
    Optional<Vocabulary> own = checkpoint.vocabulary();
    if (own.isEmpty() || TokenizerJson.isIn(folder)) {
      return TokenizerJson.read(folder);
    }
    if (own.get().equals(Vocabulary.GPT2)) {
      return TokenizerJson.read(gpt2.orElse(folder));
    }
    try {
      return TokenizerJson.of(own.get());
    } catch (IllegalArgumentException e) {
      throw unusable(source, e);
    }
  }

  private static Tokenizer of(TokenizerJson json, Path source, int rows)
      throws CheckpointException {
    try {
      return new Tokenizer(json, rows);
    } catch (IllegalArgumentException e) {
      throw unusable(source, e);
    }
  }

  private static CheckpointException unusable(Path source, IllegalArgumentException cause) {
    return new CheckpointException(
        "not a usable tokenizer in %s: %s".formatted(source, cause.getMessage()), cause);
  }

  /**
   * The tokenizer of {@link #open(Checkpoint, Optional)} as tables, to be written into another
   * file. Read anew: an open tokenizer keeps its merges in native memory only.
   *
   * @throws CheckpointException as {@link #open(Path)}
   */
  public static Vocabulary vocabulary(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    TokenizerJson json = read(checkpoint, gpt2);
    try {
      TokenTable table = new TokenTable(json.vocab(), json.added());
      List<Vocabulary.Token> tokens = new ArrayList<>();
      for (int id = 0; id < table.size(); id++) {
        tokens.add(
            table.contains(id)
                ? new Vocabulary.Token(table.raw(id), kind(table, id))
                : Vocabulary.Token.unused(id));
      }
      return new Vocabulary(tokens, json.merges());
    } catch (IllegalArgumentException e) {
      throw unusable(checkpoint.source(), e);
    }
  }

  /**
   * The tokenizer of {@link #open(Checkpoint, Optional)} as a tokenizer.json: the file beside the
   * weights, or one made from what else is there. Empty if there is no tokenizer, or one without
   * merges.
   *
   * @throws CheckpointException if there is one and it is broken
   */
  public static Optional<byte[]> json(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    Path folder = folderOf(checkpoint);
    if (checkpoint.vocabulary().isEmpty() && !TokenizerJson.isIn(folder)) {
      return Optional.empty();
    }
    Vocabulary vocabulary = vocabulary(checkpoint, gpt2);
    Path file = folder.resolve(TokenizerJson.FILE_NAME);
    if (Files.exists(file)) {
      try {
        return Optional.of(Files.readAllBytes(file));
      } catch (IOException e) {
        throw new CheckpointException("%s can't be read: %s".formatted(file, e.getMessage()), e);
      }
    }
    return vocabulary.merges().isEmpty()
        ? Optional.empty()
        : Optional.of(HfTokenizer.json(vocabulary));
  }

  private static Vocabulary.Kind kind(TokenTable table, int id) {
    return table.isSpecial(id)
        ? Vocabulary.Kind.SPECIAL
        : table.isLiteral(id) ? Vocabulary.Kind.ADDED : Vocabulary.Kind.NORMAL;
  }

  /**
   * The ids of {@code text}; none for the empty string. A lone surrogate counts as U+FFFD.
   *
   * @param parseSpecial whether {@code <|endoftext|>} and other special tokens are found in the
   *     text; otherwise they are plain characters. Added tokens that aren't special always are.
   * @throws IllegalArgumentException if the text has a byte that the vocabulary can't spell, or if
   *     the model's tokens are known {@linkplain #ofIds by their ids alone}
   * @throws IllegalStateException if closed
   */
  public int[] encode(String text, boolean parseSpecial) {
    IntStream.Builder ids = IntStream.builder();
    added.split(wellFormed(text), parseSpecial, ids, plain -> encodePlain(plain, ids));
    return ids.build().toArray();
  }

  private void encodePlain(String text, IntStream.Builder ids) {
    int unknown = spellsBytes ? table.unknownByte(text) : -1;
    if (unknown >= 0) {
      throw new IllegalArgumentException(
          "the tokenizer has no token for byte %02X of the text".formatted(unknown));
    }
    for (long id : encoder.encode(text)) {
      ids.accept((int) id);
    }
  }

  /** {@code text} with U+FFFD for surrogates that are no half of a pair, which UTF-8 can't hold. */
  private static String wellFormed(String text) {
    if (text.codePoints().noneMatch(Tokenizer::isSurrogate)) {
      return text;
    }
    int[] codePoints = text.codePoints().map(c -> isSurrogate(c) ? 0xFFFD : c).toArray();
    return new String(codePoints, 0, codePoints.length);
  }

  private static boolean isSurrogate(int codePoint) {
    return codePoint >= Character.MIN_SURROGATE && codePoint <= Character.MAX_SURROGATE;
  }

  /** One more than the highest id. Not every id below need have a token. */
  public int size() {
    return table.size();
  }

  /** Whether some token has this id, and the model a row for it. */
  public boolean contains(int id) {
    return id >= 0 && ids.get(id);
  }

  /**
   * The ids of all tokens: those that can be said. The model's other rows only pad its vocabulary;
   * no token is chosen from them, and no probability or rank counts them.
   *
   * @return a copy
   */
  public BitSet ids() {
    return (BitSet) ids.clone();
  }

  /**
   * Checks that some token has this id, and the model a row for it.
   *
   * @throws IllegalArgumentException if not; the message says which ids there are
   */
  public void requireToken(int id) {
    if (!contains(id)) {
      throw new IllegalArgumentException(
          "token id %d is outside the vocabulary 0..%d".formatted(id, ids.length() - 1));
    }
  }

  /**
   * The most bytes of UTF-8 that a text of so many tokens has, where each token stands for its own
   * bytes and for no more. Where one may stand for a text of any length, more than any text has.
   */
  public long mostBytes(int tokens) {
    return (long) tokens * longestToken;
  }

  /** Why there is no text for the tokens; empty if there is. */
  public Optional<String> whyNoText() {
    return whyNoText;
  }

  /** Whether the id is a control token's, such as {@code <|endoftext|>}; false for unknown ids. */
  public boolean isSpecial(int id) {
    return table.isSpecial(id);
  }

  /** Whether the id is an added token's, whose spelling is its text; false for unknown ids. */
  public boolean isAdded(int id) {
    return table.isLiteral(id);
  }

  /**
   * The vocabulary's own spelling, e.g. {@code Ġking}.
   *
   * @throws IllegalArgumentException if no token has this id
   */
  public String raw(int id) {
    return table.raw(id);
  }

  /** The id of the token spelled {@code raw} in the vocabulary. */
  public OptionalInt idOf(String raw) {
    return table.idOf(raw);
  }

  /**
   * The bytes that a token stands for; not always whole characters. Those of a special token are
   * its literal text in UTF-8. None where {@linkplain #ofIds only the id is known}.
   *
   * @throws IllegalArgumentException if no token has this id
   */
  public byte[] bytes(int id) {
    byte[] bytes = table.bytes(id);
    return whyNoText.isEmpty() ? bytes : new byte[0];
  }

  /**
   * The text of {@code ids}, special tokens left out. Bytes that are no UTF-8 become U+FFFD as
   * {@link String#String(byte[], java.nio.charset.Charset)} does it.
   *
   * @throws IllegalArgumentException if no token has one of the ids
   */
  public String decode(int[] ids) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (int id : ids) {
      bytes.writeBytes(textBytes(id));
    }
    return bytes.toString(UTF_8);
  }

  /** The label of a token, see {@link Labels}. */
  String label(int id) {
    return Labels.label(table.bytes(id));
  }

  /** The bytes that a token adds to the text: none if it is special. */
  byte[] textBytes(int id) {
    return isSpecial(id) ? new byte[0] : bytes(id);
  }

  /** Frees the native memory, once encodings under way are done. May be called again. */
  @Override
  public void close() {
    encoder.close();
  }
}
