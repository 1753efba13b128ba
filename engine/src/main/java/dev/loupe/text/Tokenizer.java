package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.vocabulary.HfTokenizer;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.UnaryOperator;
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
  /** Names by which other programs find what OpenAI's files hold. */
  private static final Map<String, String> TODAYS_NAMES =
      Map.of("encoder.json", "vocab.json", "vocab.bpe", "merges.txt");

  private final TokenTable table;
  private final BitSet ids;
  private final AddedTokens ofText; // looked for in a text as it is
  private final AddedTokens ofNormalized; // looked for after that
  private final Encoder encoder;
  private final @Nullable Encoder laterEncoder; // of parts that a text does not begin with
  private final @Nullable SentencePieceText sentencePiece;
  private final UnaryOperator<String> before;
  private final boolean everyPart;
  private final boolean cleansUp;
  private final boolean spellsBytes; // and leaves out what has no token, without a word
  private final Optional<String> whyNoText;
  private final long longestToken; // bytes
  private final int modelSize;
  private final int[] nativeIds; // of the numbers that the encoder gives from there on
  private final int unknown;
  private final int[] front;
  private final List<String> notes;
  private final Map<String, String> settings;

  /**
   * @param rows of the model's vocabulary
   * @param whyNoText why its tokens are known by their ids alone; empty if they are not
   */
  private Tokenizer(TokenizerFolder.Found found, int rows, Optional<String> whyNoText)
      throws CheckpointException {
    TokenizerJson json = found.json();
    SentencePieceModel pieces = found.sentencePiece();
    boolean byteLevel = json.isByteLevel();
    sentencePiece = pieces == null ? null : new SentencePieceText(pieces);
    Spelling spelling =
        byteLevel ? null : pieces == null ? Spelling.of(json.decoder) : Spelling.of(pieces);
    table = new TokenTable(json.vocab(), json.added(), spelling);
    ids = ids(table, rows);
    this.whyNoText = whyNoText;
    List<AddedToken> first = new ArrayList<>();
    List<AddedToken> second = new ArrayList<>();
    List<AddedToken> byLibrary = json.nativeTokens();
    for (AddedToken token : json.added()) {
      if (!byLibrary.contains(token)) {
        (token.normalized() && json.normalizer.isJsonNull() ? second : first).add(token);
      }
    }
    ofText = new AddedTokens(first);
    ofNormalized = new AddedTokens(second);
    before = found.before();
    everyPart = found.everyPart();
    cleansUp = found.cleansUp();
    boolean bpe = !json.isWithoutMerges();
    int unknownToken = json.unknown();
    spellsBytes = bpe && byteLevel && json.model == TokenizerJson.Model.BPE && unknownToken < 0;
    unknown = byteLevel ? -1 : unknownToken;
    longestToken =
        sentencePiece == null && json.spellsAllOfAText() ? longest(table) : Integer.MAX_VALUE;
    modelSize = json.modelSize();
    nativeIds = json.nativeIds();
    front = new int[found.front().size()];
    for (int i = 0; i < front.length; i++) {
      String token = found.front().get(i);
      front[i] =
          table
              .idOf(token)
              .orElseThrow(
                  () ->
                      new IllegalArgumentException(
                          "\"%s\", which belongs in front of a text, is no token"
                              .formatted(token)));
    }
    List<String> said = new ArrayList<>(found.notes());
    if (front.length > 0) {
      said.add(
          "the tokenizer's files put %s in front of a text"
              .formatted(String.join(" ", found.front())));
    }
    if (json.model == TokenizerJson.Model.BPE
        && !byteLevel
        && unknownToken < 0
        && !json.hasByteFallback()) {
      said.add("characters that the tokenizer has no token for are left out of a text");
    }
    notes = List.copyOf(said);
    settings = found.inForce();
    encoder =
        bpe
            ? new NativeTokenizer(
                json.forNativeLibrary(hidden(json, pieces)), unknownToken, byteIds(json, pieces))
            : new LongestTokens(json.vocab());
    laterEncoder = json.beLater() ? later(json) : null;
  }

  @SuppressWarnings("MustBeClosedChecker")
  private Encoder later(TokenizerJson json) throws CheckpointException {
    boolean made = false;
    try {
      Encoder later = new NativeTokenizer(json.forNativeLibrary(new BitSet()));
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
            case BYTE, UNKNOWN -> json.model == TokenizerJson.Model.BPE;
            case CONTROL, UNUSED -> false;
          };
      hidden.set(id, !isText);
    }
    return hidden;
  }

  /** The ids of a SentencePiece model's bytes, where the library can't spell with them itself. */
  private static int[] byteIds(TokenizerJson json, @Nullable SentencePieceModel pieces) {
    if (pieces == null || !pieces.byteFallback() || json.model == TokenizerJson.Model.BPE) {
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

  private static long longest(TokenTable table) {
    long longest = 1;
    for (int id = 0; id < table.size(); id++) {
      longest = Math.max(longest, table.contains(id) ? table.bytes(id, false).length : 0);
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
  public static Tokenizer ofIds(int rows, String why) throws CheckpointException {
    List<Vocabulary.Token> numbers =
        IntStream.range(0, rows)
            .mapToObj(id -> new Vocabulary.Token(Integer.toString(id), Vocabulary.Kind.NORMAL))
            .toList();
    TokenizerJson json = TokenizerJson.of(new Vocabulary(numbers, List.of()));
    return new Tokenizer(
        new TokenizerFolder.Found(
            json,
            null,
            UnaryOperator.identity(),
            true,
            false,
            "",
            List.of(),
            null,
            List.of(),
            Map.of()),
        rows,
        Optional.of(why));
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
    return of(read(checkpoint, gpt2), checkpoint.source(), checkpoint.config().vocabSize());
  }

  /**
   * Opens the tokenizer that a checkpoint's own file carries, whatever lies beside it.
   *
   * @throws CheckpointException if it is broken
   */
  public static Tokenizer carriedBy(Checkpoint checkpoint) throws CheckpointException {
    Vocabulary own = checkpoint.vocabulary().orElse(new Vocabulary(List.of(), List.of()));
    return of(found(own, checkpoint.source()), checkpoint.source(), Integer.MAX_VALUE);
  }

  /** The adapter's where it brings a tokenizer, else the model's. */
  private static Path folderOf(Checkpoint checkpoint) {
    Optional<Path> adapter = checkpoint.adapter().filter(TokenizerFolder::isIn);
    if (adapter.isPresent()) {
      return adapter.get();
    }
    Path source = checkpoint.source();
    Path parent = source.toAbsolutePath().getParent();
    return Files.isDirectory(source) || parent == null ? source : parent;
  }

  private static TokenizerFolder.Found read(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    Path folder = folderOf(checkpoint);
    Optional<Vocabulary> own = checkpoint.vocabulary();
    int rows = checkpoint.config().vocabSize();
    if (own.isEmpty() || TokenizerFolder.isIn(folder)) {
      return TokenizerFolder.read(folder, rows);
    }
    if (own.get().equals(Vocabulary.GPT2)) {
      return TokenizerFolder.read(gpt2.orElse(folder), rows);
    }
    return found(own.get(), checkpoint.source());
  }

  private static TokenizerFolder.Found found(Vocabulary own, Path source)
      throws CheckpointException {
    try {
      TokenizerJson json = TokenizerJson.of(own);
      Map<String, String> inForce = new LinkedHashMap<>();
      inForce.put("vocabulary", "byte-level BPE, in %s".formatted(source.getFileName()));
      List<String> front = new ArrayList<>();
      if (own.front() >= 0) {
        front.add(own.tokens().get(own.front()).spelling());
        inForce.put("in front of a text", front.getFirst() + ", by add_bos_token");
      }
      return new TokenizerFolder.Found(
          json, null, UnaryOperator.identity(), true, false, "", front, null, List.of(), inForce);
    } catch (IllegalArgumentException e) {
      throw unusable(source, e);
    }
  }

  private static Tokenizer of(TokenizerFolder.Found found, Path source, int rows)
      throws CheckpointException {
    try {
      return new Tokenizer(found, rows, Optional.empty());
    } catch (IllegalArgumentException e) {
      throw unusable(source, e);
    }
  }

  private static CheckpointException unusable(Path source, IllegalArgumentException cause) {
    return new CheckpointException(
        "not a usable tokenizer in %s: %s".formatted(source, cause.getMessage()), cause);
  }

  /**
   * The tokenizer of {@link #open(Checkpoint, Optional)} as tables of a byte-level BPE, to be
   * written into another file. Read anew: an open tokenizer keeps its merges in native memory only.
   *
   * @throws CheckpointException as {@link #open(Path)}, or if it has what such tables can't carry;
   *     the message names it
   */
  public static Vocabulary vocabulary(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    TokenizerFolder.Found found = read(checkpoint, gpt2);
    TokenizerJson json = found.json();
    try {
      List<String> lost = json.beyondGpt2();
      if (found.sentencePiece() != null) {
        lost = List.of("SentencePiece");
      }
      if (found.front().size() > 1) {
        lost = List.of("several tokens in front of a text");
      }
      if (!lost.isEmpty()) {
        throw new CheckpointException(
            "%s: its tokenizer has %s, which a GGUF file of GPT-2 can't carry; convert to a folder"
                .formatted(checkpoint.source(), String.join(", ", lost)));
      }
      TokenTable table = new TokenTable(json.vocab(), json.added(), null);
      List<Vocabulary.Token> tokens = new ArrayList<>();
      for (int id = 0; id < table.size(); id++) {
        tokens.add(
            table.contains(id)
                ? new Vocabulary.Token(table.raw(id), kind(table, id))
                : Vocabulary.Token.unused(id));
      }
      int front = found.front().isEmpty() ? -1 : table.idOf(found.front().getFirst()).orElse(-1);
      int unknown = json.unknown();
      if (unknown < 0 && found.unknown() != null) {
        unknown = table.idOf(found.unknown()).orElse(-1);
      }
      Optional<ChatFormat> chat = ChatFormat.of(checkpoint.source());
      if (chat.isEmpty()) {
        chat = ChatFormat.carried(checkpoint);
      }
      return new Vocabulary(tokens, json.merges(), front, unknown, chat.map(ChatFormat::template));
    } catch (IllegalArgumentException e) {
      throw unusable(checkpoint.source(), e);
    }
  }

  /**
   * The tokenizer of {@link #open(Checkpoint, Optional)} as files for a model's folder, by their
   * names: those beside the weights, or a tokenizer.json made from what else is there. None if
   * there is no tokenizer, or one that has no such form.
   *
   * @throws CheckpointException if there is one and it is broken
   */
  public static Map<String, byte[]> files(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    Path folder = folderOf(checkpoint);
    boolean beside = TokenizerFolder.isIn(folder);
    if (checkpoint.vocabulary().isEmpty() && !beside) {
      return Map.of();
    }
    if (beside) {
      TokenizerFolder.Found found = read(checkpoint, gpt2);
      Map<String, byte[]> files = new LinkedHashMap<>();
      for (Path file : TokenizerFolder.files(folder)) {
        String name = String.valueOf(file.getFileName());
        files.putIfAbsent(
            TODAYS_NAMES.getOrDefault(name, name),
            InputFile.read(file, TokenizerJson.MAX_BYTES, "a tokenizer").array());
      }
      TokenizerSettings.keepClass(folder, found.className())
          .ifPresent(text -> files.put(TokenizerSettings.FILE_NAME, text.getBytes(UTF_8)));
      return files;
    }
    Vocabulary vocabulary = vocabulary(checkpoint, gpt2);
    return vocabulary.merges().isEmpty()
        ? Map.of()
        : Map.of(TokenizerJson.FILE_NAME, HfTokenizer.json(vocabulary));
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
    return ofNormalized.marked(ofText.marked(text, mark), mark);
  }

  private int[] encode(String text, boolean parseSpecial, @Nullable String mark) {
    if (whyNoText.isPresent()) {
      if (text.isEmpty()) {
        return new int[0];
      }
      throw new IllegalArgumentException(
          "this model takes token ids alone: %s".formatted(whyNoText.get()));
    }
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
    if (laterEncoder != null) {
      laterEncoder.close();
    }
  }
}
