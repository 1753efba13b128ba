package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.text.codec.TextEncoder;
import dev.loupe.text.codec.TokenTable;
import dev.loupe.text.files.CheckpointTokenizer;
import dev.loupe.text.files.FoundTokenizer;
import dev.loupe.text.files.Gpt2Differences;
import dev.loupe.text.files.TokenizerFolder;
import dev.loupe.text.files.TokenizerJson;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.ByteArrayOutputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Text to token ids and back. Encoding is done by Hugging Face's tokenizers library, after added
 * tokens were found and settings beside the vocabulary followed; decoding by tables of our own. A
 * vocabulary without merges gives one token for each character, of models that were trained so.
 *
 * <p>Safe for use by several threads; closing waits for encodings under way. Only encoding needs an
 * open tokenizer: what ids stand for can still be asked after {@link #close}.
 *
 * <p>Sources: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section
 * 2.2, and OpenAI's gpt-2, src/encoder.py; for other kinds, huggingface/tokenizers and
 * google/sentencepiece.
 */
public final class Tokenizer implements AutoCloseable {
  private final TokenTable table;
  private final BitSet ids;
  private final TextEncoder encoder;
  private final boolean cleansUp;
  private final Optional<String> whyNoText;
  private final long longestToken; // bytes
  private final int unknown;
  private final int[] front;
  private final List<String> notes;
  private final Map<String, String> settings;

  /**
   * @param rows of the model's vocabulary
   * @param whyNoText why its tokens are known by their ids alone; empty if they are not
   */
  private Tokenizer(FoundTokenizer found, int rows, Optional<String> whyNoText)
      throws CheckpointException {
    TokenizerJson json = found.json();
    boolean byteLevel = json.isByteLevel();
    table = new TokenTable(json.vocab(), json.added(), found.spelling());
    ids = table.ids(rows);
    this.whyNoText = whyNoText;
    cleansUp = found.cleansUp();
    int unknownToken = json.unknown();
    unknown = byteLevel ? -1 : unknownToken;
    longestToken =
        found.sentencePiece() == null && Gpt2Differences.spellsAllOfAText(json)
            ? table.longest()
            : Integer.MAX_VALUE;
    front = front(table, found.front());
    List<String> said = new ArrayList<>(found.notes());
    if (front.length > 0) {
      said.add(
          "the tokenizer's files put %s in front of a text"
              .formatted(String.join(" ", found.front())));
    }
    if (json.model() == TokenizerJson.Model.BPE
        && !byteLevel
        && unknownToken < 0
        && !json.hasByteFallback()) {
      said.add("characters that the tokenizer has no token for are left out of a text");
    }
    notes = List.copyOf(said);
    settings = found.inForce();
    encoder = new TextEncoder(found, table);
  }

  private static int[] front(TokenTable table, List<String> tokens) {
    int[] ids = new int[tokens.size()];
    for (int i = 0; i < ids.length; i++) {
      String token = tokens.get(i);
      ids[i] =
          table
              .idOf(token)
              .orElseThrow(
                  () ->
                      new IllegalArgumentException(
                          "\"%s\", which belongs in front of a text, is no token"
                              .formatted(token)));
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
  public static Tokenizer ofIds(int rows, String why) throws CheckpointException {
    List<Vocabulary.Token> numbers =
        IntStream.range(0, rows)
            .mapToObj(id -> new Vocabulary.Token(Integer.toString(id), Vocabulary.Kind.NORMAL))
            .toList();
    TokenizerJson json = TokenizerJson.of(new Vocabulary(numbers, List.of()));
    return new Tokenizer(FoundTokenizer.plain(json, List.of(), Map.of()), rows, Optional.of(why));
  }

  /**
   * Opens the tokenizer in {@code folder}: its tokenizer.json, vocab.json with merges.txt,
   * vocab.txt or spiece.model, and the settings beside it.
   *
   * @throws CheckpointException if there is none, if it is broken or can't be used, or if the
   *     native library doesn't load on this machine
   */
  public static Tokenizer open(Path folder) throws CheckpointException {
    return of(TokenizerFolder.read(folder, Integer.MAX_VALUE), folder, Integer.MAX_VALUE);
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
    return of(
        CheckpointTokenizer.read(checkpoint, gpt2),
        checkpoint.source(),
        checkpoint.config().vocabSize());
  }

  /**
   * Opens the tokenizer that a checkpoint's own file carries, whatever lies beside it.
   *
   * @throws CheckpointException if it is broken
   */
  public static Tokenizer carriedBy(Checkpoint checkpoint) throws CheckpointException {
    return of(CheckpointTokenizer.carriedBy(checkpoint), checkpoint.source(), Integer.MAX_VALUE);
  }

  private static Tokenizer of(FoundTokenizer found, Path source, int rows)
      throws CheckpointException {
    try {
      return new Tokenizer(found, rows, Optional.empty());
    } catch (IllegalArgumentException e) {
      throw TokenizerFolder.unusable(source, e);
    }
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
    return encode(text, parseSpecial, null);
  }

  /**
   * The ids of a text in which some special tokens are meant and others are what somebody said.
   *
   * @param mark a character that is no part of the text. Where it stands within the spelling of a
   *     special token, that is plain characters; elsewhere special tokens are found.
   * @throws IllegalArgumentException as {@link #encode(String, boolean)}
   */
  public int[] encodeMarked(String text, char mark) {
    return encode(text, true, String.valueOf(mark));
  }

  /** {@code text} with {@code mark} within each spelling of a special token. */
  public String marked(String text, char mark) {
    return encoder.marked(text, mark);
  }

  private int[] encode(String text, boolean parseSpecial, @Nullable String mark) {
    if (whyNoText.isPresent()) {
      if (text.isEmpty()) {
        return new int[0];
      }
      throw new IllegalArgumentException(
          "this model takes token ids alone: %s".formatted(whyNoText.get()));
    }
    return encoder.encode(text, parseSpecial, mark);
  }

  /**
   * The ids of {@code text} after those that belong in front of every text.
   *
   * @param withFront whether they are wanted
   * @throws IllegalArgumentException as {@link #encode}
   */
  public int[] encodePrompt(String text, boolean parseSpecial, boolean withFront) {
    int[] ids = encode(text, parseSpecial);
    return withFront ? IntStream.concat(IntStream.of(front), IntStream.of(ids)).toArray() : ids;
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
   * The bytes that a token stands for, when it does not begin the text; not always whole
   * characters. Those of a special token are its literal text in UTF-8. None where {@linkplain
   * #ofIds only the id is known}.
   *
   * @throws IllegalArgumentException if no token has this id
   */
  public byte[] bytes(int id) {
    return bytes(id, false);
  }

  byte[] bytes(int id, boolean first) {
    byte[] bytes = table.bytes(id, first);
    return whyNoText.isEmpty() ? bytes : new byte[0];
  }

  boolean isFirstUntilText() {
    return table.isFirstUntilText();
  }

  /** Whether a token only steers the model. The one for what is unknown stands for a text. */
  boolean isControl(int id) {
    return isSpecial(id) && id != unknown;
  }

  /** The ids that belong in front of every text; perhaps none. */
  public int[] front() {
    return front.clone();
  }

  /** What the user should know: what is put in front, what is not followed. One sentence each. */
  public List<String> notes() {
    return notes;
  }

  /** What is in force, by its name: its value and the file that says so. */
  public Map<String, String> settings() {
    return settings;
  }

  /**
   * The text of {@code ids}, special tokens left out. Bytes that are no UTF-8 become U+FFFD as
   * {@link String#String(byte[], java.nio.charset.Charset)} does it.
   *
   * @throws IllegalArgumentException if no token has one of the ids
   */
  public String decode(int[] ids) {
    return decode(ids, false);
  }

  /**
   * Likewise.
   *
   * @param special whether special tokens are part of the text
   */
  public String decode(int[] ids, boolean special) {
    TextBytes text = new TextBytes(this, special);
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (int id : ids) {
      bytes.writeBytes(text.next(id));
    }
    String decoded = bytes.toString(UTF_8);
    return cleansUp ? CleanUp.clean(decoded) : decoded;
  }

  /** Whether some spaces are taken out of the text of tokens. */
  boolean cleansUp() {
    return cleansUp;
  }

  /** The label of a token, see {@link Labels}. */
  String label(int id) {
    // a special token is shown as it is, whatever a decoder puts between tokens
    return Labels.label(isSpecial(id) ? raw(id).getBytes(UTF_8) : table.bytes(id, false));
  }

  /** Frees the native memory, once encodings under way are done. May be called again. */
  @Override
  public void close() {
    encoder.close();
  }
}
