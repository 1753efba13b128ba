package dev.loupe.text;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/**
 * A tokenizer as its files describe it, in the parts of a Hugging Face tokenizer.json. The big
 * parts (vocabulary, merges) are streamed; the small ones are kept as JSON, for the native
 * tokenizer.
 */
final class TokenizerJson {
  static final String FILE_NAME = "tokenizer.json";
  private static final Set<String> MODEL_SETTINGS =
      Set.of(
          "unk_token",
          "unk_id",
          "fuse_unk",
          "byte_fallback",
          "ignore_merges",
          "continuing_subword_prefix",
          "end_of_word_suffix",
          "max_input_chars_per_word");

  static final int MAX_BYTES = 128 << 20; // the largest today has 35 million
  private static final int MOST_MERGES = 2 * Vocabulary.MOST_TOKENS;
  private static final int MOST_AROUND = 1 << 10;
  private static final int MOST_VALUES = 1 << 16; // of the steps, and of what an added token says
  private static final String GPT2_PATTERN =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

  /** What cuts a word into tokens. */
  enum Model {
    BPE("BPE"),
    WORD_PIECE("WordPiece"),
    WORD_LEVEL("WordLevel"),
    UNIGRAM("Unigram");

    private final String type;

    Model(String type) {
      this.type = type;
    }

    static Model named(String type) {
      for (Model model : values()) {
        if (model.type.equals(type)) {
          return model;
        }
      }
      throw new IllegalArgumentException(
          "its model is %s; BPE, WordPiece, WordLevel and Unigram can be used".formatted(type));
    }
  }

  private final Map<String, Integer> vocab = HashMap.newHashMap(1 << 16);
  private final List<String> merges = new ArrayList<>(1 << 16); // "left right"
  private final List<Double> scores = new ArrayList<>(); // of Unigram, by id
  private final List<AddedToken> added = new ArrayList<>();
  private final JsonObject settings = new JsonObject(); // of the model, such as unk_token
  Model model = Model.BPE;
  JsonElement normalizer = JsonNull.INSTANCE;
  JsonElement preTokenizer = JsonNull.INSTANCE;
  JsonElement postProcessor = JsonNull.INSTANCE;
  JsonElement decoder = JsonNull.INSTANCE;
  private boolean hasVocab;
  private boolean hasMerges;
  private boolean hasType;
  private boolean hasDropout;

  TokenizerJson() {}

  /**
   * Reads a tokenizer.json.
   *
   * @throws CheckpointException if it is broken, or has steps that can't be taken
   */
  static TokenizerJson readJson(Path file) throws CheckpointException {
    TokenizerJson tokenizer = new TokenizerJson();
    read(
        file,
        in ->
            in.json(
                json -> {
                  tokenizer.readTokenizerJson(json);
                  return tokenizer;
                }));
    return tokenizer;
  }

  /**
   * Reads OpenAI's pair of files, of a byte-level BPE.
   *
   * @param vocab token to id, as JSON
   * @param merges a merge on each line
   * @throws CheckpointException if one is broken
   */
  static TokenizerJson readPair(Path vocab, Path merges) throws CheckpointException {
    TokenizerJson tokenizer = new TokenizerJson();
    read(
        vocab,
        in ->
            in.json(
                json -> {
                  readVocab(json, tokenizer.vocab);
                  return tokenizer;
                }));
    read(merges, in -> in.lines(tokenizer::readMerge));
    tokenizer.beByteLevel(false);
    return tokenizer;
  }

  /**
   * Reads BERT's vocab.txt, a token on each line.
   *
   * @throws CheckpointException if it is broken
   */
  static TokenizerJson readVocabTxt(Path file) throws CheckpointException {
    TokenizerJson tokenizer = new TokenizerJson();
    tokenizer.model = Model.WORD_PIECE;
    read(
        file,
        in -> {
          int[] id = {0};
          // of two that are the same the later counts, as there
          in.lines(line -> tokenizer.addToken(line, id[0]++));
        });
    return tokenizer;
  }

  /** Makes the steps around the model those of GPT-2. */
  void beByteLevel(boolean addPrefixSpace) {
    preTokenizer = byteLevel(addPrefixSpace);
    decoder = byteLevel(addPrefixSpace);
  }

  private static JsonObject byteLevel(boolean addPrefixSpace) {
    JsonObject step = new JsonObject();
    step.addProperty("type", "ByteLevel");
    step.addProperty("add_prefix_space", addPrefixSpace);
    step.addProperty("trim_offsets", true);
    step.addProperty("use_regex", true);
    return step;
  }

  /** Gives a token an id in the model's vocabulary, whatever had it before. */
  void addToken(String token, int id) {
    vocab.put(token, id);
    checkSize();
  }

  private void checkSize() {
    if (vocab.size() > Vocabulary.MOST_TOKENS) {
      throw new IllegalArgumentException("more than %d tokens".formatted(Vocabulary.MOST_TOKENS));
    }
  }

  /** Gives the next id of a Unigram model to a piece. */
  void addPiece(String piece, double score) {
    if (vocab.put(piece, scores.size()) != null) {
      throw new IllegalArgumentException(
          "token \"%s\" appears twice".formatted(StrictJson.shown(piece)));
    }
    scores.add(score);
    checkSize();
  }

  /** A setting of the model, such as unk_token. */
  void set(String name, JsonElement value) {
    settings.add(name, value);
  }

  /**
   * The tokenizer that a checkpoint carries.
   *
   * @throws IllegalArgumentException if two tokens have one spelling, or a merge is none
   */
  static TokenizerJson of(Vocabulary vocabulary) {
    TokenizerJson tokenizer = new TokenizerJson();
    for (int id = 0; id < vocabulary.tokens().size(); id++) {
      Vocabulary.Token token = vocabulary.tokens().get(id);
      switch (token.kind()) {
        case NORMAL -> {
          if (tokenizer.vocab.put(token.spelling(), id) != null) {
            throw new IllegalArgumentException(
                "token \"%s\" appears twice".formatted(token.spelling()));
          }
        }
        case SPECIAL, ADDED -> {
          boolean special = token.kind() == Vocabulary.Kind.SPECIAL;
          tokenizer.added.add(AddedToken.plain(token.spelling(), id, special));
        }
        case UNUSED -> {}
      }
    }
    vocabulary.merges().forEach(tokenizer::addMerge);
    tokenizer.beByteLevel(false);
    return tokenizer;
  }

  /** Raw spelling to id of the model's vocabulary. */
  Map<String, Integer> vocab() {
    return vocab;
  }

  /** {@code "left right"}, the first that applies first. */
  List<String> merges() {
    return List.copyOf(merges);
  }

  /** Whether it is no BPE but a vocabulary alone, as of a checkpoint. Files always have merges. */
  boolean isWithoutMerges() {
    return model == Model.BPE && merges.isEmpty() && !hasMerges;
  }

  /** Whether tokens are spelled in GPT-2's alphabet of bytes. */
  boolean isByteLevel() {
    return isWithoutMerges()
        || steps(preTokenizer).contains("ByteLevel")
        || steps(normalizer).contains("ByteLevel")
        || steps(decoder).contains("ByteLevel");
  }

  /** Whether it says that merges are left out at random, which is for training. */
  boolean hasDropout() {
    return hasDropout;
  }

  /** Tokens of literal text, special or not. */
  List<AddedToken> added() {
    return added;
  }

  /**
   * The id of the token that the model gives for what it does not know; -1 if it has none.
   *
   * @throws IllegalArgumentException if there is such a token, but not in the vocabulary
   */
  int unknown() {
    if (model == Model.UNIGRAM) {
      JsonElement id = settings.get("unk_id");
      return id == null || id.isJsonNull() ? -1 : JsonValue.whole(id, "unk_id");
    }
    JsonElement unknown = settings.get("unk_token");
    if (unknown == null || unknown.isJsonNull()) {
      return -1;
    }
    Integer id = vocab.get(JsonValue.text(unknown, "unk_token"));
    if (id == null) {
      throw new IllegalArgumentException(
          "unk_token %s is not in the vocabulary".formatted(unknown));
    }
    return id;
  }

  /** Whether what the model does not know is spelled in tokens of one byte. */
  boolean hasByteFallback() {
    return JsonValue.flag(settings, "byte_fallback", false);
  }

  /**
   * What the post-processor puts in front of a text: the literal spelling of its tokens.
   *
   * @throws IllegalArgumentException if it is of a kind that is not known
   */
  List<String> front() {
    List<String> front = new ArrayList<>();
    around(postProcessor, front, new ArrayList<>());
    return front;
  }

  /** What the post-processor puts behind a text, likewise. */
  List<String> behind() {
    List<String> behind = new ArrayList<>();
    around(postProcessor, new ArrayList<>(), behind);
    return behind;
  }

  private static void around(JsonElement step, List<String> front, List<String> behind) {
    if (step.isJsonNull()) {
      return;
    }
    JsonObject object = JsonValue.object(step, "a step of its post_processor");
    String type = type(object);
    switch (type) {
      case "ByteLevel" -> {} // only trims the places of tokens
      case "Sequence" ->
          JsonValue.array(object.get("processors"), "processors")
              .forEach(one -> around(one, front, behind));
      case "BertProcessing", "RobertaProcessing" -> {
        JsonArray cls = JsonValue.array(object.get("cls"), "cls");
        front.addFirst(JsonValue.text(cls.isEmpty() ? null : cls.get(0), "the token in cls"));
        JsonArray sep = JsonValue.array(object.get("sep"), "sep");
        behind.add(JsonValue.text(sep.isEmpty() ? null : sep.get(0), "the token in sep"));
      }
      case "TemplateProcessing" -> {
        List<String> before = new ArrayList<>();
        List<String> side = before;
        for (JsonElement part : JsonValue.array(object.get("single"), "single")) {
          JsonObject one = JsonValue.object(part, "a part of single");
          if (!one.has("SpecialToken")) { // the text
            side = behind;
            continue;
          }
          JsonObject special = JsonValue.object(one.get("SpecialToken"), "SpecialToken");
          String name = JsonValue.text(special.get("id"), "id of SpecialToken");
          JsonObject known = JsonValue.object(object.get("special_tokens"), "special_tokens");
          JsonObject token = JsonValue.object(known.get(name), "its special token " + name);
          for (JsonElement spelling : JsonValue.array(token.get("tokens"), "tokens")) {
            side.add(JsonValue.text(spelling, "one of tokens"));
          }
          if (side.size() > MOST_AROUND) {
            throw new IllegalArgumentException(
                "its post_processor adds more than %d tokens to a text".formatted(MOST_AROUND));
          }
        }
        front.addAll(0, before);
      }
      default -> throw new IllegalArgumentException("its post_processor is %s".formatted(type));
    }
  }

  /**
   * The tokenizer.json to give to the native library: no truncation, padding, dropout or
   * post-processing, and of the added tokens only those that are looked for in normalized text. The
   * others are left out because the library always finds special ones in user text, and because it
   * numbers those beyond the vocabulary itself instead of taking the file's ids.
   *
   * @param hidden ids of the vocabulary whose spelling must not be found in a text
   */
  String forNativeLibrary(BitSet hidden) {
    StringBuilder out = new StringBuilder(1 << 21);
    out.append("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    String separator = "";
    int next = 0;
    for (AddedToken token : nativeTokens()) {
      // the id has no meaning there but must be given
      quote(out.append(separator).append("{\"id\":").append(next++), ",\"content\":", token);
      separator = ",";
    }
    out.append("],\"normalizer\":").append(normalizer);
    out.append(",\"pre_tokenizer\":").append(preTokenizer);
    out.append(",\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":");
    quote(out, model.type);
    for (Map.Entry<String, JsonElement> entry : settings.entrySet()) {
      quote(out.append(','), entry.getKey()).append(':').append(entry.getValue());
    }
    if (model == Model.UNIGRAM) {
      appendPieces(out, hidden);
      return out.append("}}").toString();
    }
    out.append(",\"vocab\":{");
    separator = "";
    for (Map.Entry<String, Integer> entry : vocab.entrySet()) {
      int id = entry.getValue();
      quote(out.append(separator), hidden.get(id) ? unspeakable(id) : entry.getKey());
      out.append(':').append(id);
      separator = ",";
    }
    if (nativeIds().length > 0) { // which the library numbers from the count of tokens on
      BitSet used = new BitSet();
      vocab.values().forEach(used::set);
      for (int id = used.nextClearBit(0); id < modelSize(); id = used.nextClearBit(id + 1)) {
        quote(out.append(separator), unspeakable(id)).append(':').append(id);
        separator = ",";
      }
    }
    if (model != Model.BPE) {
      return out.append("}}}").toString();
    }
    out.append("},\"merges\":[");
    separator = "";
    for (String merge : merges) {
      quote(out.append(separator), merge);
      separator = ",";
    }
    return out.append("]}}").toString();
  }

  private void appendPieces(StringBuilder out, BitSet hidden) {
    String[] pieces = new String[scores.size()];
    vocab.forEach((piece, id) -> pieces[id] = piece);
    out.append(",\"vocab\":[");
    for (int id = 0; id < pieces.length; id++) {
      out.append(id == 0 ? "[" : ",[");
      quote(out, hidden.get(id) ? unspeakable(id) : pieces[id]);
      out.append(',').append(scores.get(id)).append(']');
    }
    out.append(']');
  }

  /** Text that nobody writes: it has characters that Unicode reserves for a program's own use. */
  private static String unspeakable(int id) {
    return "\uFDD0" + id + "\uFDD1";
  }

  /** Added tokens that only the native library can find: in text that it normalized. */
  List<AddedToken> nativeTokens() {
    return normalizer.isJsonNull()
        ? List.of()
        : added.stream().filter(token -> token.normalized() && !token.special()).toList();
  }

  /**
   * Ids of {@link #nativeTokens} that the model's vocabulary lacks, in the order in which the
   * library numbers them behind it.
   */
  int[] nativeIds() {
    return nativeTokens().stream()
        .filter(token -> !vocab.containsKey(token.content()))
        .mapToInt(AddedToken::id)
        .toArray();
  }

  /**
   * Makes it a tokenizer of parts that a text does not begin with, if those differ.
   *
   * @return whether they do: a Metaspace step may put a space in front of the first alone
   */
  boolean beLater() {
    boolean[] differ = {false};
    forEach(
        preTokenizer,
        step -> {
          JsonElement scheme = step.get("prepend_scheme");
          if (scheme != null && scheme.equals(new JsonPrimitive("first"))) {
            step.addProperty("prepend_scheme", "never");
            differ[0] = true;
          }
        });
    return differ[0];
  }

  /** What a tokenizer may have beyond GPT-2's and still spell all of a text. */
  private static final Set<String> KEEPING_ALL =
      Set.of("add_prefix_space", "use_regex false", "ignore_merges", "Digits");

  /** What tables of a byte-level BPE with GPT-2's steps can't say about this; empty if nothing. */
  List<String> beyondGpt2() {
    List<String> beyond = new ArrayList<>();
    if (model != Model.BPE || !isByteLevel()) {
      beyond.add("a model of the kind " + model.type);
      return beyond;
    }
    beyond.addAll(steps(normalizer));
    boolean[] splits = {false};
    forEach(
        preTokenizer,
        step -> {
          boolean byteLevel = type(step).equals("ByteLevel");
          boolean gpt2 = isGpt2Split(step);
          splits[0] |= gpt2 || (byteLevel && flag(step, "use_regex", true));
          if (!byteLevel && !gpt2) {
            beyond.add(type(step));
          }
          if (flag(step, "add_prefix_space", false)) {
            beyond.add("add_prefix_space");
          }
        });
    if (!splits[0] && hasMerges) {
      beyond.add("use_regex false");
    }
    for (String name : List.of("byte_fallback", "ignore_merges")) {
      if (flag(settings, name, false)) {
        beyond.add(name);
      }
    }
    for (AddedToken token : added) {
      if (token.lstrip() || token.rstrip() || token.singleWord()) {
        beyond.add(
            "%s of token \"%s\""
                .formatted(
                    token.lstrip() ? "lstrip" : token.rstrip() ? "rstrip" : "single_word",
                    token.content()));
      }
    }
    return beyond;
  }

  /**
   * Whether every byte of a text is in some token, and each token stands for its own bytes alone:
   * nothing is left out, replaced, or unknown.
   */
  boolean spellsAllOfAText() {
    return isWithoutMerges() || (unknown() < 0 && KEEPING_ALL.containsAll(beyondGpt2()));
  }

  /** Whether a step parts words as GPT-2 does, with the pattern written out. */
  private static boolean isGpt2Split(JsonObject step) {
    return type(step).equals("Split")
        && step.get("pattern") instanceof JsonObject pattern
        && pattern.has("Regex")
        && new JsonPrimitive(GPT2_PATTERN).equals(pattern.get("Regex"))
        && new JsonPrimitive("Isolated").equals(step.get("behavior"))
        && !flag(step, "invert", false);
  }

  /** One more than the highest id of the model's vocabulary. */
  int modelSize() {
    int most = -1;
    for (int id : vocab.values()) {
      most = Math.max(most, id);
    }
    return most + 1;
  }

  private static void quote(StringBuilder out, String before, AddedToken token) {
    quote(out.append(before), token.content());
    out.append(",\"single_word\":").append(token.singleWord());
    out.append(",\"lstrip\":").append(token.lstrip());
    out.append(",\"rstrip\":").append(token.rstrip());
    out.append(",\"normalized\":true,\"special\":false}");
  }

  private static StringBuilder quote(StringBuilder out, String text) {
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
    return (done == 0 ? out.append(text) : out.append(text, done, text.length())).append('"');
  }

  /** What is made of one file; whatever it throws becomes a sentence that names the file. */
  private interface Reading {
    void run(InputFile in) throws CheckpointException;
  }

  private static void read(Path path, Reading reading) throws CheckpointException {
    InputFile file = InputFile.read(path, MAX_BYTES, "a tokenizer");
    try {
      reading.run(file);
    } catch (CheckpointException e) {
      String message = String.valueOf(e.getMessage());
      throw message.startsWith(path.toString())
          ? e
          : new CheckpointException("%s: not a usable tokenizer: %s".formatted(path, message), e);
    } catch (IllegalArgumentException | IllegalStateException | UnsupportedOperationException e) {
      throw new CheckpointException(
          "%s: not a usable tokenizer: %s".formatted(path, e.getMessage()), e);
    }
  }

  private static JsonElement part(JsonReader json, String what) throws IOException {
    return StrictJson.tree(json, what, MOST_VALUES);
  }

  private void readTokenizerJson(JsonReader json) throws IOException {
    StrictJson.beginObject(json, "it");
    while (json.hasNext()) {
      switch (json.nextName()) {
        case "added_tokens" -> readAddedTokens(json);
        case "normalizer" -> normalizer = part(json, "its normalizer");
        case "pre_tokenizer" -> preTokenizer = part(json, "its pre_tokenizer");
        case "post_processor" -> postProcessor = part(json, "its post_processor");
        case "decoder" -> decoder = part(json, "its decoder");
        case "model" -> readModel(json);
        default -> json.skipValue();
      }
    }
    json.endObject();
    if (!hasVocab || (model == Model.BPE && !hasMerges)) {
      throw new IllegalArgumentException(
          "it has no %s, as a tokenizer of the kind %s must"
              .formatted(hasVocab ? "model.merges" : "model.vocab", model.type));
    }
    if ((model == Model.UNIGRAM) == scores.isEmpty()) {
      throw new IllegalArgumentException(
          "its model.vocab is not that of a %s model".formatted(model.type));
    }
    for (String affix : List.of("continuing_subword_prefix", "end_of_word_suffix")) {
      JsonElement value = settings.get(affix);
      boolean isGiven =
          value != null && !value.isJsonNull() && !JsonValue.text(value, affix).isEmpty();
      if (isGiven && isByteLevel()) {
        throw new IllegalArgumentException("its %s is not empty, as in GPT-2".formatted(affix));
      }
    }
    check(normalizer, "normalizer", NORMALIZERS);
    check(preTokenizer, "pre_tokenizer", PRE_TOKENIZERS);
    Spelling.check(decoder);
    var _ = front();
  }

  private static final Set<String> NORMALIZERS =
      Set.of(
          "NFC",
          "NFD",
          "NFKC",
          "NFKD",
          "Nmt",
          "Lowercase",
          "Strip",
          "StripAccents",
          "Prepend",
          "Replace",
          "ByteLevel",
          "BertNormalizer",
          "Precompiled");
  private static final Set<String> PRE_TOKENIZERS =
      Set.of(
          "ByteLevel",
          "Digits",
          "Split",
          "Whitespace",
          "WhitespaceSplit",
          "Punctuation",
          "Metaspace",
          "BertPreTokenizer",
          "CharDelimiterSplit",
          "UnicodeScripts");

  /**
   * Checks the steps around the model. The native library ends the process when a pattern takes too
   * long or a table of characters leads nowhere.
   */
  private static void check(JsonElement step, String what, Set<String> known) {
    forEach(
        step,
        one -> {
          String type = type(one);
          if (!known.contains(type)) {
            throw new IllegalArgumentException("its %s is %s".formatted(what, type));
          }
          if (type.equals("Precompiled")) {
            var _ = new Charsmap(ByteBuffer.wrap(base64(one)));
          }
          if (one.get("pattern") instanceof JsonObject pattern && pattern.has("Regex")) {
            SafePattern.check(JsonValue.text(pattern.get("Regex"), "Regex"));
          }
        });
  }

  private static byte[] base64(JsonObject step) {
    JsonElement map = step.get("precompiled_charsmap");
    return Base64.getDecoder()
        .decode(map == null || map.isJsonNull() ? "" : JsonValue.text(map, "precompiled_charsmap"));
  }

  /** The types of the steps in {@code step}. */
  static List<String> steps(JsonElement step) {
    List<String> types = new ArrayList<>();
    forEach(step, one -> types.add(type(one)));
    return types;
  }

  /** Gives the steps in their order; a Sequence lists its own. */
  static void forEach(JsonElement step, Consumer<JsonObject> action) {
    if (step.isJsonNull()) {
      return;
    }
    JsonObject object = JsonValue.object(step, "one of its steps");
    if (!type(object).equals("Sequence")) {
      action.accept(object);
      return;
    }
    for (JsonElement value : object.asMap().values()) {
      if (value instanceof JsonArray sequence) { // its name depends on the kind of step
        sequence.forEach(element -> forEach(element, action));
      }
    }
  }

  private static String type(JsonObject step) {
    return step.has("type") ? JsonValue.text(step.get("type"), "the type of a step") : "untyped";
  }

  private void readAddedTokens(JsonReader json) throws IOException {
    json.beginArray();
    while (json.hasNext()) {
      JsonObject token = JsonValue.object(part(json, "an added token"), "an added token");
      String content = JsonValue.text(token.get("content"), "content of an added token");
      boolean special = flag(token, "special", false);
      if (added.size() == Vocabulary.MOST_TOKENS) {
        throw new IllegalArgumentException(
            "more than %d added tokens".formatted(Vocabulary.MOST_TOKENS));
      }
      added.add(
          new AddedToken(
              content,
              JsonValue.whole(
                  token.get("id"), "id of added token \"%s\"".formatted(StrictJson.shown(content))),
              special,
              flag(token, "single_word", false),
              flag(token, "lstrip", false),
              flag(token, "rstrip", false),
              flag(token, "normalized", !special)));
    }
    json.endArray();
  }

  private static boolean flag(JsonObject token, String name, boolean otherwise) {
    return JsonValue.flag(token, name, otherwise);
  }

  private void readModel(JsonReader json) throws IOException {
    json.beginObject();
    while (json.hasNext()) {
      String name = json.nextName();
      switch (name) {
        case "vocab" -> {
          if (json.peek() == JsonToken.BEGIN_ARRAY) {
            readPieces(json);
          } else {
            readVocabObject(json, vocab);
          }
          hasVocab = true;
        }
        case "merges" -> readMerges(json);
        case "type" -> {
          model = Model.named(StrictJson.string(json, "its model's type"));
          hasType = true;
        }
        default -> {
          if (MODEL_SETTINGS.contains(name)) {
            settings.add(name, part(json, name));
          } else if (name.equals("dropout") && json.peek() != JsonToken.NULL) {
            hasDropout = json.nextDouble() > 0;
          } else {
            json.skipValue(); // what later versions may add
          }
        }
      }
    }
    json.endObject();
    if (!hasType) { // in old files, GPT-2's own among them
      model =
          !scores.isEmpty()
              ? Model.UNIGRAM
              : settings.has("max_input_chars_per_word") ? Model.WORD_PIECE : Model.BPE;
    }
  }

  private void readPieces(JsonReader json) throws IOException {
    json.beginArray();
    while (json.hasNext()) {
      json.beginArray();
      addPiece(
          StrictJson.string(json, "a piece of its model"),
          JsonValue.real(part(json, "a score"), "the score of a piece"));
      json.endArray();
    }
    json.endArray();
  }

  private static void readVocab(JsonReader json, Map<String, Integer> vocab) throws IOException {
    readVocabObject(json, vocab);
  }

  private static void readVocabObject(JsonReader json, Map<String, Integer> vocab)
      throws IOException {
    json.beginObject();
    while (json.hasNext()) {
      String token = json.nextName();
      // an int at once, since there are many; all else goes where it is named
      String digits = json.peek() == JsonToken.NUMBER ? json.nextString() : null;
      Long id = digits == null ? null : StrictJson.wholeNumber(digits);
      if (id == null || id.intValue() != id) {
        JsonElement given =
            digits == null ? part(json, "an id") : new JsonPrimitive(new BigDecimal(digits));
        var _ = JsonValue.whole(given, "the id of token \"%s\"".formatted(StrictJson.shown(token)));
        throw new AssertionError(given);
      }
      if (vocab.put(token, id.intValue()) != null) {
        throw new IllegalArgumentException(
            "token \"%s\" appears twice".formatted(StrictJson.shown(token)));
      }
      if (vocab.size() > Vocabulary.MOST_TOKENS) {
        throw new IllegalArgumentException("more than %d tokens".formatted(Vocabulary.MOST_TOKENS));
      }
    }
    json.endObject();
  }

  /** Merges are {@code "left right"} or, in newer files, {@code ["left", "right"]}. */
  private void readMerges(JsonReader json) throws IOException {
    json.beginArray();
    while (json.hasNext()) {
      if (json.peek() == JsonToken.BEGIN_ARRAY) {
        json.beginArray();
        String left = StrictJson.string(json, "a part of a merge");
        addMerge(left + " " + StrictJson.string(json, "a part of a merge"));
        json.endArray();
      } else {
        addMerge(StrictJson.string(json, "a merge"));
      }
    }
    json.endArray();
    hasMerges = true;
  }

  private void readMerge(String line) {
    // only the header: "# #" and the like are merges
    if (!line.isEmpty() && !line.startsWith("#version")) {
      addMerge(line);
    }
  }

  void addMerge(String merge) {
    int space = merge.indexOf(' ');
    if (space < 1 || space != merge.lastIndexOf(' ') || space == merge.length() - 1) {
      throw new IllegalArgumentException(
          "merge %d, \"%s\", is not two tokens with a space between"
              .formatted(merges.size() + 1, StrictJson.shown(merge)));
    }
    merges.add(merge);
    if (merges.size() > MOST_MERGES) {
      throw new IllegalArgumentException("more than %d merges".formatted(MOST_MERGES));
    }
  }
}
