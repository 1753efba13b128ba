package dev.loupe.text;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import dev.loupe.weights.vocabulary.SentencePieceModel.Piece;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.file.Files;
import java.nio.file.Path;
import java.text.Normalizer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The tokenizer in a model's folder: which of its files counts, and what the settings beside it
 * change. Ids are those of Hugging Face transformers 5; of SentencePiece models, SentencePiece's.
 *
 * <p>Sources: {@code tokenization_auto.py}, {@code tokenization_utils_tokenizers.py} and the
 * classes GPT2Tokenizer, BertTokenizer, T5Tokenizer, LlamaTokenizer and XLNetTokenizer of
 * transformers; {@code bpe_model.cc} and {@code unigram_model.cc} of google/sentencepiece.
 */
final class TokenizerFolder {
  private static final String END_OF_TEXT = "<|endoftext|>";
  private static final String PREFIX_SPACE = "add_prefix_space";
  private static final String CLEAN_UP = "clean_up_tokenization_spaces";
  private static final String CLEAN_UP_BPE =
      CLEAN_UP + "_for_bpe_even_though_it_will_corrupt_output";
  private static final String VOCAB_TXT = "vocab.txt";
  private static final List<String> SENTENCE_PIECE =
      List.of("spiece.model", "tokenizer.model", "sentencepiece.bpe.model");
  private static final Set<String> LIKE_BERT =
      Set.of("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer");
  private static final Set<String> LIKE_XLNET = Set.of("XLNetTokenizer", "AlbertTokenizer");
  private static final Pattern NUMBER = Pattern.compile("[0-9],$");
  private static final Pattern SPACES = Pattern.compile("(?U)\\s+");
  private static final Pattern ACCENTS = Pattern.compile("\\p{Mn}+");
  private static final Set<String> OF_JSON =
      Set.of("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend", "");

  /** Classes that change a text in ways of their own before or after their vocabulary sees it. */
  private static final Set<String> OTHERS =
      Set.of(
          "BertJapaneseTokenizer",
          "CpmTokenizer",
          "CpmAntTokenizer",
          "RoFormerTokenizer",
          "EsmTokenizer",
          "BertweetTokenizer",
          "PhobertTokenizer",
          "CTRLTokenizer",
          "OpenAIGPTTokenizer",
          "GPTSw3Tokenizer",
          "ByT5Tokenizer",
          "CanineTokenizer");

  private final Path folder;
  private final TokenizerSettings settings;
  private final int rows;
  private final List<String> notes = new ArrayList<>();
  private final Map<String, String> inForce = new LinkedHashMap<>();
  private int next = -1; // the first id that no token has, once it is asked for

  private TokenizerFolder(Path folder, int rows) throws CheckpointException {
    this.folder = folder;
    this.rows = rows;
    settings = TokenizerSettings.in(folder);
  }

  /**
   * What was found.
   *
   * @param json the tokenizer
   * @param sentencePiece the model that it was made from, if it was one
   * @param before what its class does to a text before all else
   * @param everyPart whether each part between added tokens gets a space in front, or the first
   *     only
   * @param cleansUp whether text is shown without spaces before punctuation
   * @param className what transformers opens it with; perhaps empty
   * @param front spellings of the tokens in front of a text
   * @param unknown the token that is said to stand for what is unknown, if there is one
   * @param notes for the user, one sentence each
   * @param inForce setting to its value and the file that says so
   */
  record Found(
      TokenizerJson json,
      @Nullable SentencePieceModel sentencePiece,
      UnaryOperator<String> before,
      boolean everyPart,
      boolean cleansUp,
      String className,
      List<String> front,
      @Nullable String unknown,
      List<String> notes,
      Map<String, String> inForce) {}

  /** OpenAI's two files: under Hugging Face's names, or its own. */
  private static @Nullable List<Path> pair(Path folder) {
    return Stream.of(
            List.of(folder.resolve("vocab.json"), folder.resolve("merges.txt")),
            List.of(folder.resolve("encoder.json"), folder.resolve("vocab.bpe")))
        .filter(pair -> pair.stream().allMatch(Files::exists))
        .findFirst()
        .orElse(null);
  }

  private static @Nullable Path sentencePiece(Path folder) {
    return SENTENCE_PIECE.stream()
        .map(folder::resolve)
        .filter(Files::exists)
        .findFirst()
        .orElse(null);
  }

  /** Whether {@code folder} has a tokenizer's files, sound or not. */
  static boolean isIn(Path folder) {
    return Files.exists(folder.resolve(TokenizerJson.FILE_NAME))
        || pair(folder) != null
        || Files.exists(folder.resolve(VOCAB_TXT))
        || sentencePiece(folder) != null;
  }

  /** The files of {@code folder} that a tokenizer is read from, those that are there. */
  static List<Path> files(Path folder) {
    List<String> names = new ArrayList<>(List.of(TokenizerJson.FILE_NAME, "vocab.json"));
    names.addAll(List.of("merges.txt", "encoder.json", "vocab.bpe", VOCAB_TXT));
    names.addAll(SENTENCE_PIECE);
    names.addAll(
        List.of(TokenizerSettings.FILE_NAME, TokenizerSettings.SPECIALS, TokenizerSettings.ADDED));
    return names.stream().map(folder::resolve).filter(Files::exists).toList();
  }

  /**
   * Reads the tokenizer in {@code folder}.
   *
   * @param rows of the model; added tokens beyond them are left out, and a note says so
   * @throws CheckpointException if there is none, or what is there is broken or of a kind that
   *     can't be used
   */
  static Found read(Path folder, int rows) throws CheckpointException {
    return new TokenizerFolder(folder, rows).read();
  }

  private Found read() throws CheckpointException {
    String className = settings.className();
    Path json = folder.resolve(TokenizerJson.FILE_NAME);
    List<Path> pair = pair(folder);
    Path words = folder.resolve(VOCAB_TXT);
    Path pieces = sentencePiece(folder);
    boolean likeBert = LIKE_BERT.contains(className);
    try {
      if (Files.exists(json)) {
        return ofJson(TokenizerJson.readJson(json));
      }
      if (OTHERS.contains(className)) {
        throw new CheckpointException(
            "%s: its tokenizer is a %s, which can't be used; save it as tokenizer.json"
                .formatted(folder.resolve(settings.classFile()), className));
      }
      if (pair != null && !(likeBert && Files.exists(words))) {
        return ofPair(TokenizerJson.readPair(pair.getFirst(), pair.getLast()), pair.getFirst());
      }
      if (Files.exists(words) && (likeBert || pieces == null)) {
        return ofWords(TokenizerJson.readVocabTxt(words));
      }
      if (pieces != null) {
        return ofPieces(SentencePieceModel.read(pieces), pieces);
      }
    } catch (IllegalArgumentException | IllegalStateException | UnsupportedOperationException e) {
      throw new CheckpointException(
          "not a usable tokenizer in %s: %s".formatted(folder, e.getMessage()), e);
    }
    throw new CheckpointException(
        ("no tokenizer in %s: looked for tokenizer.json, for vocab.json with merges.txt, for"
                + " encoder.json with vocab.bpe, for vocab.txt, and for spiece.model; copy them"
                + " from where the model came from")
            .formatted(folder));
  }

  private Found ofJson(TokenizerJson json) {
    inForce.put("vocabulary", "%s, in tokenizer.json".formatted(json.model));
    String className = settings.className();
    if (className.equals("GPT2Tokenizer")) {
      beGpt2(json);
    } else if (LIKE_BERT.contains(className) && json.model == TokenizerJson.Model.WORD_PIECE) {
      beBert(json);
    } else if (!OF_JSON.contains(className)) {
      notes.add(
          "the tokenizer is read as tokenizer.json says, whatever its class %s does besides"
              .formatted(className));
    }
    notePrefixSpace(addsPrefixSpace(json.preTokenizer), TokenizerJson.FILE_NAME);
    if (settings.has("add_bos_token") || settings.has("add_eos_token")) {
      notes.add(
          "add_bos_token and add_eos_token in tokenizer_config.json are not followed: where there"
              + " is a tokenizer.json, its post_processor counts");
    }
    if (json.hasDropout()) {
      notes.add("the model's dropout in tokenizer.json, which is for training, is not followed");
    }
    addTokens(json, defaults(className));
    return found(json, null, json.front(), "post_processor of tokenizer.json");
  }

  /** GPT-2's class takes from a tokenizer.json only the vocabulary and what goes in front. */
  private void beGpt2(TokenizerJson json) {
    if (json.model != TokenizerJson.Model.BPE || !json.isByteLevel()) {
      notes.add(
          "the tokenizer is read as tokenizer.json says: a %s, not what GPT2Tokenizer is for"
              .formatted(json.model));
      return;
    }
    List<String> steps = TokenizerJson.steps(json.preTokenizer);
    List<String> dropped = new ArrayList<>(TokenizerJson.steps(json.normalizer));
    dropped.addAll(steps.stream().filter(step -> !step.equals("ByteLevel")).toList());
    if (!dropped.isEmpty()) {
      notes.add(
          ("%s of tokenizer.json are left out, as transformers 5 does for GPT2Tokenizer;"
                  + " tokenizer_class PreTrainedTokenizerFast in tokenizer_config.json keeps them")
              .formatted(dropped));
    }
    boolean space = settings.flag(PREFIX_SPACE, false);
    boolean own = addsPrefixSpace(json.preTokenizer);
    if (own != space) {
      notes.add(
          ("add_prefix_space is %s in tokenizer.json and %s in tokenizer_config.json, which counts"
                  + " for GPT2Tokenizer")
              .formatted(own, settings.has(PREFIX_SPACE) ? space : "not given"));
    }
    json.normalizer = JsonNull.INSTANCE;
    json.beByteLevel(space);
    json.set("unk_token", JsonNull.INSTANCE);
    inForce.put(PREFIX_SPACE, "%s, by %s".formatted(space, settings.classFile()));
  }

  private static boolean addsPrefixSpace(JsonElement preTokenizer) {
    boolean[] adds = {false};
    TokenizerJson.forEach(
        preTokenizer,
        step -> {
          boolean isMetaspace =
              JsonValue.text(step.get("type"), "type of pre_tokenizer").equals("Metaspace");
          adds[0] |=
              isMetaspace ? Spelling.prepends(step) : JsonValue.flag(step, PREFIX_SPACE, false);
        });
    return adds[0];
  }

  /** Says so where the settings beside a tokenizer contradict what its own file has. */
  private void notePrefixSpace(boolean own, String file) {
    if (settings.flag(PREFIX_SPACE, own) != own && !inForce.containsKey(PREFIX_SPACE)) {
      notes.add(
          "%s is %s in %s, which counts, whatever %s says"
              .formatted(PREFIX_SPACE, own, file, TokenizerSettings.FILE_NAME));
    }
  }

  private Found ofPair(TokenizerJson json, Path vocab) {
    inForce.put("vocabulary", "byte-level BPE, in %s".formatted(vocab.getFileName()));
    boolean space = settings.flag(PREFIX_SPACE, false);
    json.beByteLevel(space);
    inForce.put(PREFIX_SPACE, from(space, PREFIX_SPACE));
    addTokens(json, Map.of("unk", END_OF_TEXT, "bos", END_OF_TEXT, "eos", END_OF_TEXT));
    return found(json, null, END_OF_TEXT, END_OF_TEXT);
  }

  /**
   * What was found, where the settings say what belongs in front of a text.
   *
   * @param bos the token that begins a text, unless the settings name another
   * @param eos likewise the one that ends it
   */
  private Found found(
      TokenizerJson json, @Nullable SentencePieceModel pieces, String bos, String eos) {
    noteBehind(named(settings.flag("add_eos_token", false), "eos_token", eos));
    return found(
        json,
        pieces,
        named(settings.flag("add_bos_token", false), "bos_token", bos),
        "add_bos_token of tokenizer_config.json");
  }

  private List<String> named(boolean isWanted, String role, String otherwise) {
    String token = isWanted ? settings.token(role, otherwise) : null;
    return token == null ? List.of() : List.of(token);
  }

  private String from(Object value, String name) {
    return settings.has(name)
        ? "%s, by %s".formatted(value, TokenizerSettings.FILE_NAME)
        : "%s, by default".formatted(value);
  }

  private void noteBehind(List<String> tokens) {
    if (!tokens.isEmpty()) {
      notes.add(
          "transformers puts %s behind a text; it is left out, for the model is to go on from there"
              .formatted(String.join(" ", tokens)));
    }
  }

  private Found ofWords(TokenizerJson json) {
    inForce.put("vocabulary", "WordPiece, in vocab.txt");
    if (!LIKE_BERT.contains(settings.className())) {
      notes.add(
          "vocab.txt is read as BertTokenizer does it; tokenizer_config.json names no such class");
    }
    beBert(json);
    addTokens(json, defaults("BertTokenizer"));
    return found(json, null, json.front(), "BertTokenizer");
  }

  private void beBert(TokenizerJson json) {
    boolean lower = settings.flag("do_lower_case", true);
    boolean chinese = settings.flag("tokenize_chinese_chars", true);
    JsonObject normalizer = step("BertNormalizer");
    normalizer.addProperty("clean_text", true);
    normalizer.addProperty("handle_chinese_chars", chinese);
    normalizer.add(
        "strip_accents",
        settings.has("strip_accents")
            ? new JsonPrimitive(settings.flag("strip_accents", false))
            : JsonNull.INSTANCE);
    normalizer.addProperty("lowercase", lower);
    json.normalizer = normalizer;
    json.preTokenizer = step("BertPreTokenizer");
    JsonObject decoder = step("WordPiece");
    decoder.addProperty("prefix", "##");
    decoder.addProperty("cleanup", true);
    json.decoder = decoder;
    String unknown = settings.token("unk_token", "[UNK]");
    json.set("unk_token", new JsonPrimitive(unknown == null ? "[UNK]" : unknown));
    json.set("continuing_subword_prefix", new JsonPrimitive("##"));
    json.set("max_input_chars_per_word", new JsonPrimitive(100));
    String begin = settings.token("cls_token", "[CLS]");
    String end = settings.token("sep_token", "[SEP]");
    JsonObject ends = step("BertProcessing");
    ends.add("sep", list(end == null ? "[SEP]" : end));
    ends.add("cls", list(begin == null ? "[CLS]" : begin));
    json.postProcessor = ends;
    inForce.put("do_lower_case", from(lower, "do_lower_case"));
    inForce.put("tokenize_chinese_chars", from(chinese, "tokenize_chinese_chars"));
    inForce.put("strip_accents", from(normalizer.get("strip_accents"), "strip_accents"));
  }

  private static JsonObject step(String type) {
    JsonObject step = new JsonObject();
    step.addProperty("type", type);
    return step;
  }

  private static JsonArray list(String token) {
    JsonArray list = new JsonArray();
    list.add(token);
    return list;
  }

  private Found ofPieces(SentencePieceModel model, Path file) {
    inForce.put(
        "vocabulary", "SentencePiece %s, in %s".formatted(model.algorithm(), file.getFileName()));
    TokenizerJson json = new TokenizerJson();
    Set<String> known = new HashSet<>();
    for (Piece piece : model.pieces()) {
      if (!known.add(piece.text())) {
        throw new IllegalArgumentException("piece \"%s\" appears twice".formatted(piece.text()));
      }
    }
    String className = settings.className();
    switch (model.algorithm()) {
      case UNIGRAM -> {
        json.model = TokenizerJson.Model.UNIGRAM;
        model.pieces().forEach(piece -> json.addPiece(piece.text(), score(piece)));
        json.set("unk_id", new JsonPrimitive(model.unknown()));
      }
      case BPE -> {
        for (int id = 0; id < model.pieces().size(); id++) {
          json.addToken(model.pieces().get(id).text(), id);
        }
        merges(model).forEach(json::addMerge);
        json.set("unk_token", new JsonPrimitive(model.pieces().get(model.unknown()).text()));
        json.set("fuse_unk", new JsonPrimitive(true));
        json.set("byte_fallback", new JsonPrimitive(model.byteFallback()));
      }
      default ->
          throw new IllegalArgumentException(
              "%s is a SentencePiece model of the kind %s; UNIGRAM and BPE can be used"
                  .formatted(file.getFileName(), model.algorithm()));
    }
    for (int id = 0; id < model.pieces().size(); id++) {
      Piece piece = model.pieces().get(id);
      if (piece.type() == SentencePieceModel.Type.CONTROL
          || piece.type() == SentencePieceModel.Type.USER_DEFINED) {
        boolean special = piece.type() == SentencePieceModel.Type.CONTROL;
        json.added().add(new AddedToken(piece.text(), id, special, false, false, false, !special));
      }
    }
    if (className.equals("T5Tokenizer")) {
      addExtraIds(json, model.pieces().size());
    }
    if (LIKE_XLNET.contains(className)) {
      inForce.put("do_lower_case", from(settings.flag("do_lower_case", false), "do_lower_case"));
      inForce.put("keep_accents", from(settings.flag("keep_accents", false), "keep_accents"));
      inForce.put("remove_space", from(settings.flag("remove_space", true), "remove_space"));
    }
    addTokens(json, defaults(className));
    if (className.equals("LlamaTokenizer") && !settings.has("add_bos_token")) {
      notes.add(
          "tokenizer_config.json has no add_bos_token: nothing is put in front of a text, as in"
              + " transformers 5; transformers 4 put <s> there");
    }
    notePrefixSpace(model.dummyPrefix(), String.valueOf(file.getFileName()));
    if (model.denormalizes()) {
      notes.add(
          "%s has rules for text that is shown (denormalizer_spec), which are not followed"
              .formatted(file.getFileName()));
    }
    if (className.equals("T5Tokenizer")) {
      noteBehind(named(true, "eos_token", "</s>"));
    } else if (LIKE_XLNET.contains(className)) {
      noteBehind(named(true, "sep_token", "<sep>"));
    }
    return found(json, model, "<s>", "</s>");
  }

  /** T5 numbers its sentinels backwards behind the pieces, as far as the model has rows. */
  private void addExtraIds(TokenizerJson json, int pieces) {
    int extra = settings.whole("extra_ids", 100);
    if (extra > Vocabulary.MOST_TOKENS) {
      throw new IllegalArgumentException(
          "extra_ids is %d, more than %d".formatted(extra, Vocabulary.MOST_TOKENS));
    }
    for (int i = extra - 1; i >= 0; i--) {
      int id = pieces + extra - 1 - i;
      if (id < rows) {
        json.added().add(AddedToken.plain("<extra_id_%d>".formatted(i), id, true));
      }
    }
  }

  /** XLNet all but forbids pieces that end in a digit and a comma. */
  private double score(Piece piece) {
    boolean isNumber =
        LIKE_XLNET.contains(settings.className()) && NUMBER.matcher(piece.text()).find();
    return isNumber ? (double) piece.score() - 100 : piece.score();
  }

  private String asXlnet(String text) {
    String changed = text.replace("``", "\"").replace("''", "\"");
    if (settings.flag("remove_space", true)) {
      changed = SPACES.matcher(changed).replaceAll(" ").strip();
    }
    if (!settings.flag("keep_accents", false)) {
      changed = ACCENTS.matcher(Normalizer.normalize(changed, Normalizer.Form.NFKD)).replaceAll("");
    }
    return settings.flag("do_lower_case", false) ? changed.toLowerCase(Locale.ROOT) : changed;
  }

  /**
   * SentencePiece joins the two neighbours whose joined piece has the highest score: the same as
   * merges in the order of the scores.
   */
  private static List<String> merges(SentencePieceModel model) {
    Map<String, Piece> normal = new HashMap<>();
    for (Piece piece : model.pieces()) {
      if (piece.type() == SentencePieceModel.Type.NORMAL) {
        normal.put(piece.text(), piece);
      }
    }
    List<Piece> ordered =
        model.pieces().stream()
            .filter(piece -> piece.type() == SentencePieceModel.Type.NORMAL)
            .sorted(Comparator.comparing(Piece::score, Comparator.reverseOrder()))
            .toList();
    List<String> merges = new ArrayList<>();
    for (Piece piece : ordered) {
      String text = piece.text();
      for (int at = 1; at < text.length(); at++) {
        String left = text.substring(0, at);
        String right = text.substring(at);
        if (normal.containsKey(left) && normal.containsKey(right)) {
          merges.add(left + " " + right);
        }
      }
    }
    return merges;
  }

  /** Special tokens that a class has when no file names others. */
  private static Map<String, String> defaults(String className) {
    Map<String, String> tokens = new LinkedHashMap<>();
    if (LIKE_BERT.contains(className)) {
      tokens.put("unk", "[UNK]");
      tokens.put("sep", "[SEP]");
      tokens.put("pad", "[PAD]");
      tokens.put("cls", "[CLS]");
      tokens.put("mask", "[MASK]");
    } else if (className.equals("T5Tokenizer")) {
      tokens.put("eos", "</s>");
      tokens.put("unk", "<unk>");
      tokens.put("pad", "<pad>");
    } else if (className.equals("LlamaTokenizer")) {
      tokens.put("unk", "<unk>");
      tokens.put("bos", "<s>");
      tokens.put("eos", "</s>");
    } else if (className.equals("XLNetTokenizer")) {
      tokens.put("bos", "<s>");
      tokens.put("eos", "</s>");
      tokens.put("unk", "<unk>");
      tokens.put("sep", "<sep>");
      tokens.put("pad", "<pad>");
      tokens.put("cls", "<cls>");
      tokens.put("mask", "<mask>");
    } else if (className.equals("GPT2Tokenizer")) {
      tokens.put("eos", END_OF_TEXT);
    }
    return tokens;
  }

  /** Adds what the settings name: tokens with ids first, then special ones by their spelling. */
  private void addTokens(TokenizerJson json, Map<String, String> defaults) {
    Map<String, AddedToken> byContent = new LinkedHashMap<>();
    json.added().forEach(token -> byContent.put(token.content(), token));
    int given = settings.added().size();
    for (AddedToken token : settings.added().values()) {
      AddedToken before = byContent.get(token.content());
      Integer id = json.vocab().get(token.content());
      int own = before != null ? before.id() : id != null ? id : token.id();
      if (own != token.id()) {
        notes.add(
            "token \"%s\" has the id %d, not %d as %s says"
                .formatted(token.content(), own, token.id(), settings.addedFile()));
      }
      byContent.put(token.content(), token.withId(own));
    }
    if (given > 0) {
      inForce.put("added tokens", "%d, in %s".formatted(given, settings.addedFile()));
    }
    for (TokenizerSettings.Named named : settings.named()) {
      name(json, byContent, named.token(), named.role());
      inForce.put(
          named.role().endsWith("_token") ? named.role() : "special " + named.token().content(),
          "%s, in %s".formatted(named.token().content(), named.file()));
    }
    defaults.forEach(
        (role, content) -> {
          String key = role + "_token";
          boolean known = json.vocab().containsKey(content); // no other text means the same
          if (known && content.equals(settings.token(key, content))) {
            name(json, byContent, AddedToken.plain(content, -1, true), key);
          }
        });
    List<AddedToken> added = json.added();
    added.clear();
    byContent.values().forEach(added::add);
    noteGap(json);
  }

  /** transformers numbers added tokens from the count of the vocabulary on, whatever is written. */
  private void noteGap(TokenizerJson json) {
    int next = json.vocab().size();
    if (next != json.modelSize()) {
      return;
    }
    for (AddedToken token : json.added()) {
      if (!json.vocab().containsKey(token.content())) {
        if (token.id() != next) {
          notes.add(
              ("added token \"%s\" has the id %d, as the model's files say; transformers 5 leaves no"
                      + " gap and gives it %d")
                  .formatted(token.content(), token.id(), next));
          return;
        }
        next++;
      }
    }
  }

  private void name(
      TokenizerJson json, Map<String, AddedToken> byContent, AddedToken token, String role) {
    AddedToken before = byContent.get(token.content());
    Integer id = json.vocab().get(token.content());
    if (before != null) {
      if (!before.special()) {
        byContent.put(token.content(), token.withId(before.id()));
      }
    } else if (id != null) {
      byContent.put(token.content(), token.withId(id));
    } else {
      if (next < 0) { // once, and not for each token: there may be many
        next = nextId(json, byContent);
      }
      if (next < rows) {
        byContent.put(token.content(), token.withId(next++));
        notes.add(
            "%s \"%s\" has no id in any file: it gets %d, the next one, as in transformers"
                .formatted(role, token.content(), next - 1));
      }
    }
  }

  private static int nextId(TokenizerJson json, Map<String, AddedToken> byContent) {
    int most = -1;
    for (int id : json.vocab().values()) {
      most = Math.max(most, id);
    }
    for (AddedToken token : byContent.values()) {
      most = Math.max(most, token.id());
    }
    return most + 1;
  }

  private Found found(
      TokenizerJson json, @Nullable SentencePieceModel pieces, List<String> front, String by) {
    List<AddedToken> beyond = json.added().stream().filter(t -> t.id() >= rows).toList();
    if (!beyond.isEmpty()) {
      json.added().removeIf(token -> token.id() >= rows);
      notes.add(
          "%d added tokens have no row in the model and are left out, the first of them \"%s\" (%d)"
              .formatted(beyond.size(), beyond.getFirst().content(), beyond.getFirst().id()));
    }
    if (!front.isEmpty()) {
      inForce.put("in front of a text", "%s, by %s".formatted(String.join(" ", front), by));
    }
    noteBehind(json.behind());
    boolean cleansUp =
        settings.flag(CLEAN_UP, false)
            && (json.model != TokenizerJson.Model.BPE // whose text has its own spaces
                || settings.flag(CLEAN_UP_BPE, false));
    if (cleansUp) {
      inForce.put(CLEAN_UP, from(true, CLEAN_UP));
    }
    String className = settings.className();
    boolean everyPart = !className.equals("LlamaTokenizer") || settings.flag("legacy", false);
    for (String name : settings.unfollowed()) {
      notes.add(
          "%s in %s is not followed, as in transformers 5"
              .formatted(name, TokenizerSettings.FILE_NAME));
    }
    UnaryOperator<String> before =
        pieces != null && LIKE_XLNET.contains(className) ? this::asXlnet : text -> text;
    return new Found(
        json,
        pieces,
        before,
        everyPart,
        cleansUp,
        className,
        front,
        settings.token("unk_token", className.equals("GPT2Tokenizer") ? END_OF_TEXT : null),
        List.copyOf(notes),
        Collections.unmodifiableMap(inForce));
  }
}
