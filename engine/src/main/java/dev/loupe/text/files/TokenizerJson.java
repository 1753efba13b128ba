package dev.loupe.text.files;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A tokenizer as its files describe it, in the parts of a Hugging Face tokenizer.json. The big
 * parts (vocabulary, merges) are plain tables; the small ones are kept as JSON, for the native
 * tokenizer.
 */
public final class TokenizerJson {
  /** What such a file is called. */
  public static final String FILE_NAME = "tokenizer.json";

  private static final int MOST_MERGES = 2 * Vocabulary.MOST_TOKENS;

  /** What cuts a word into tokens. */
  public enum Model {
    BPE("BPE"),
    WORD_PIECE("WordPiece"),
    WORD_LEVEL("WordLevel"),
    UNIGRAM("Unigram");

    private final String type;

    Model(String type) {
      this.type = type;
    }

    /** What a tokenizer.json calls it. */
    String type() {
      return type;
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
  boolean hasMerges; // perhaps an empty list of them
  boolean hasDropout; // merges are left out at random, which is for training

  TokenizerJson() {}

  /**
   * The tokenizer that a checkpoint carries.
   *
   * @throws IllegalArgumentException if two tokens have one spelling, or a merge is none
   */
  public static TokenizerJson of(Vocabulary vocabulary) {
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

  /** Makes the steps around the model those of GPT-2. */
  void beByteLevel(boolean addPrefixSpace) {
    preTokenizer = byteLevel(addPrefixSpace);
    decoder = byteLevel(addPrefixSpace);
  }

  private static JsonObject byteLevel(boolean addPrefixSpace) {
    JsonObject step = Steps.step("ByteLevel");
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

  /**
   * Likewise.
   *
   * @throws IllegalArgumentException if the token is in the vocabulary
   */
  void addNewToken(String token, int id) {
    if (vocab.put(token, id) != null) {
      throw new IllegalArgumentException(
          "token \"%s\" appears twice".formatted(StrictJson.shown(token)));
    }
    checkSize();
  }

  /** Gives the next id of a Unigram model to a piece. */
  void addPiece(String piece, double score) {
    addNewToken(piece, scores.size());
    scores.add(score);
  }

  private void checkSize() {
    if (vocab.size() > Vocabulary.MOST_TOKENS) {
      throw new IllegalArgumentException("more than %d tokens".formatted(Vocabulary.MOST_TOKENS));
    }
  }

  /** Adds {@code "left right"}, which applies after those before it. */
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

  /** A setting of the model, such as unk_token. */
  void set(String name, JsonElement value) {
    settings.add(name, value);
  }

  /** The settings of the model. */
  JsonObject settings() {
    return settings;
  }

  /** What cuts a word into tokens. */
  public Model model() {
    return model;
  }

  /** Raw spelling to id of the model's vocabulary. */
  public Map<String, Integer> vocab() {
    return vocab;
  }

  /** {@code "left right"}, the first that applies first. */
  public List<String> merges() {
    return List.copyOf(merges);
  }

  /** Of a Unigram model's pieces, by id. */
  List<Double> scores() {
    return scores;
  }

  /** Tokens of literal text, special or not. */
  public List<AddedToken> added() {
    return added;
  }

  /** One more than the highest id of the model's vocabulary. */
  public int modelSize() {
    int most = -1;
    for (int id : vocab.values()) {
      most = Math.max(most, id);
    }
    return most + 1;
  }

  /** Whether it is no BPE but a vocabulary alone, as of a checkpoint. Files always have merges. */
  public boolean isWithoutMerges() {
    return model == Model.BPE && merges.isEmpty() && !hasMerges;
  }

  /** Whether tokens are spelled in GPT-2's alphabet of bytes. */
  public boolean isByteLevel() {
    return isWithoutMerges()
        || Steps.types(preTokenizer).contains("ByteLevel")
        || Steps.types(normalizer).contains("ByteLevel")
        || Steps.types(decoder).contains("ByteLevel");
  }

  /** Whether a text is changed before the model sees it. */
  public boolean normalizes() {
    return !normalizer.isJsonNull();
  }

  /**
   * The id of the token that the model gives for what it does not know; -1 if it has none.
   *
   * @throws IllegalArgumentException if there is such a token, but not in the vocabulary
   */
  public int unknown() {
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
  public boolean hasByteFallback() {
    return JsonValue.flag(settings, "byte_fallback", false);
  }

  /**
   * Makes it a tokenizer of parts that a text does not begin with, if those differ.
   *
   * @return whether they do: a Metaspace step may put a space in front of the first alone
   */
  public boolean beLater() {
    boolean[] differ = {false};
    Steps.forEach(
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
}
