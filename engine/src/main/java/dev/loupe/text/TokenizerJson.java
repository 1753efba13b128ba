package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import dev.loupe.weights.CheckpointException;
import dev.loupe.weights.Vocabulary;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A byte-level BPE tokenizer as its files describe it: a Hugging Face tokenizer.json, or OpenAI's
 * pair vocab.json and merges.txt (which it calls encoder.json and vocab.bpe). The big parts
 * (vocabulary, merges) are streamed; only what the native tokenizer needs to know besides is kept
 * as JSON.
 */
final class TokenizerJson {
  static final String FILE_NAME = "tokenizer.json";
  private static final String END_OF_TEXT = "<|endoftext|>";
  private static final String BYTE_LEVEL =
      """
      {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}\
      """;

  private final Map<String, Integer> vocab = HashMap.newHashMap(1 << 16);
  private final List<String> merges = new ArrayList<>(1 << 16); // "left right"
  private final List<AddedToken> added = new ArrayList<>();
  private final JsonObject model = new JsonObject(); // settings such as unk_token
  private JsonElement normalizer = JsonNull.INSTANCE;
  private JsonElement preTokenizer = JsonNull.INSTANCE;
  private boolean hasVocab;
  private boolean hasMerges;

  private TokenizerJson() {}

  /** One reading of one file; whatever it throws is turned into a sentence that names the file. */
  private interface Reading {
    void run(BufferedReader in) throws IOException;
  }

  /**
   * Reads the tokenizer in {@code folder}: tokenizer.json if it is there, else the pair.
   *
   * @throws CheckpointException if neither is there, or if what is there is no byte-level BPE
   */
  static TokenizerJson read(Path folder) throws CheckpointException {
    TokenizerJson tokenizer = new TokenizerJson();
    Path json = folder.resolve(FILE_NAME);
    if (Files.exists(json)) {
      read(json, tokenizer::readTokenizerJson);
      return tokenizer;
    }
    Pair pair =
        Pair.in(folder)
            .orElseThrow(
                () ->
                    new CheckpointException(
                        ("no tokenizer in %s: looked for tokenizer.json, for vocab.json with"
                                + " merges.txt, and for encoder.json with vocab.bpe; copy them"
                                + " from where the model came from")
                            .formatted(folder)));
    read(pair.vocab, in -> readVocab(parser(in), tokenizer.vocab));
    read(pair.merges, tokenizer::readMergesTxt);
    tokenizer.readAddedTokensOf(folder);
    tokenizer.preTokenizer = JsonParser.parseString(BYTE_LEVEL);
    return tokenizer;
  }

  /** The two files that OpenAI published: under Hugging Face's names, or its own. */
  private record Pair(Path vocab, Path merges) {
    static Optional<Pair> in(Path folder) {
      return Stream.of(
              new Pair(folder.resolve("vocab.json"), folder.resolve("merges.txt")),
              new Pair(folder.resolve("encoder.json"), folder.resolve("vocab.bpe")))
          .filter(pair -> Files.exists(pair.vocab) && Files.exists(pair.merges))
          .findFirst();
    }
  }

  /** Whether {@code folder} has a tokenizer's files, sound or not. */
  static boolean isIn(Path folder) {
    return Files.exists(folder.resolve(FILE_NAME)) || Pair.in(folder).isPresent();
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
          tokenizer.added.add(new AddedToken(token.spelling(), id, special, false, false, false));
        }
        case UNUSED -> {}
      }
    }
    vocabulary.merges().forEach(tokenizer::addMerge);
    tokenizer.preTokenizer = JsonParser.parseString(BYTE_LEVEL);
    return tokenizer;
  }

  /** Raw spelling to id of the BPE vocabulary. */
  Map<String, Integer> vocab() {
    return vocab;
  }

  /** {@code "left right"}, the first that applies first. */
  List<String> merges() {
    return List.copyOf(merges);
  }

  /** Whether there are none: then it is no BPE. Files always have them; see {@link #read}. */
  boolean isWithoutMerges() {
    return merges.isEmpty() && !hasMerges;
  }

  /** Tokens of literal text, special or not. */
  List<AddedToken> added() {
    return added;
  }

  /**
   * Whether BPE gives a token for what it does not know, rather than leaving it out.
   *
   * @throws IllegalArgumentException if there is such a token, but not in the vocabulary
   */
  boolean hasUnknownToken() {
    JsonElement unknown = model.get("unk_token");
    if (unknown == null || unknown.isJsonNull()) {
      return false;
    }
    if (!vocab.containsKey(unknown.getAsString())) {
      throw new IllegalArgumentException(
          "unk_token %s is not in the vocabulary".formatted(unknown));
    }
    return true;
  }

  /**
   * The tokenizer.json to give to the native library: no added tokens, truncation, padding, dropout
   * or post-processing. Added tokens are left out because the library always finds special ones in
   * user text, and because it numbers those beyond the vocabulary itself instead of taking the
   * file's ids.
   */
  String forNativeLibrary() {
    StringBuilder out = new StringBuilder(1 << 21);
    out.append("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[]");
    out.append(",\"normalizer\":").append(normalizer);
    out.append(",\"pre_tokenizer\":").append(preTokenizer);
    out.append(",\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"BPE\"");
    for (Map.Entry<String, JsonElement> entry : model.entrySet()) {
      quote(out.append(','), entry.getKey()).append(':').append(entry.getValue());
    }
    out.append(",\"vocab\":{");
    String separator = "";
    for (Map.Entry<String, Integer> entry : vocab.entrySet()) {
      quote(out.append(separator), entry.getKey()).append(':').append(entry.getValue().intValue());
      separator = ",";
    }
    out.append("},\"merges\":[");
    separator = "";
    for (String merge : merges) {
      quote(out.append(separator), merge);
      separator = ",";
    }
    return out.append("]}}").toString();
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

  private static void read(Path file, Reading reading) throws CheckpointException {
    try (BufferedReader in = Files.newBufferedReader(file, UTF_8)) {
      reading.run(in);
    } catch (CharacterCodingException e) {
      throw new CheckpointException(file + ": not UTF-8 text, so not a tokenizer", e);
    } catch (CheckpointException e) {
      throw e;
    } catch (IOException
        | IllegalStateException
        | IllegalArgumentException
        | JsonParseException e) {
      // the parser's messages go on with a link, and tell programmers to be lenient
      String message = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      message = message.replaceFirst("Use JsonReader.* to accept malformed", "malformed");
      throw new CheckpointException("%s: not a usable tokenizer: %s".formatted(file, message), e);
    }
  }

  private static JsonReader parser(BufferedReader in) {
    return new JsonReader(in);
  }

  private void readTokenizerJson(BufferedReader in) throws IOException {
    JsonReader json = parser(in);
    json.beginObject();
    while (json.hasNext()) {
      switch (json.nextName()) {
        case "added_tokens" -> readAddedTokens(json);
        case "normalizer" -> normalizer = JsonParser.parseReader(json);
        case "pre_tokenizer" -> preTokenizer = JsonParser.parseReader(json);
        case "model" -> readModel(json);
        default -> json.skipValue();
      }
    }
    json.endObject();
    var _ = json.peek(); // refuses whatever follows the document
    if (!hasVocab || !hasMerges) {
      throw new IllegalArgumentException(
          "it has no " + (hasVocab ? "model.merges" : "model.vocab") + ", as a BPE tokenizer must");
    }
    List<String> steps = new ArrayList<>();
    steps(preTokenizer, "pretokenizers", steps);
    if (!steps.contains("ByteLevel") || !Set.of("ByteLevel", "Digits").containsAll(steps)) {
      throw new IllegalArgumentException(
          "its pre_tokenizer is %s, and GPT-2's is ByteLevel".formatted(steps));
    }
    steps.clear();
    steps(normalizer, "normalizers", steps);
    if (!Set.of("NFC", "NFD", "NFKC", "NFKD", "Lowercase").containsAll(steps)) {
      throw new IllegalArgumentException(
          "its normalizer is %s, and GPT-2 has none".formatted(steps));
    }
  }

  /**
   * The types of the steps in {@code step}. They are checked because some take a pattern, and the
   * native library ends the process when matching one takes too long.
   */
  private static void steps(JsonElement step, String inSequence, List<String> types) {
    if (step.isJsonNull()) {
      return;
    }
    JsonObject object = step.getAsJsonObject();
    String type = object.has("type") ? object.get("type").getAsString() : "untyped";
    if (type.equals("Sequence") && object.get(inSequence) instanceof JsonArray sequence) {
      sequence.forEach(element -> steps(element, inSequence, types));
    } else {
      types.add(type);
    }
  }

  private void readAddedTokens(JsonReader json) throws IOException {
    json.beginArray();
    while (json.hasNext()) {
      JsonObject token = JsonParser.parseReader(json).getAsJsonObject();
      if (!token.has("id") || !token.has("content")) {
        throw new IllegalArgumentException("an added token lacks its id or content: " + token);
      }
      added.add(
          new AddedToken(
              token.get("content").getAsString(),
              token.get("id").getAsInt(),
              flag(token, "special"),
              flag(token, "single_word"),
              flag(token, "lstrip"),
              flag(token, "rstrip")));
    }
    json.endArray();
  }

  private static boolean flag(JsonObject token, String name) {
    return token.has(name) && token.get(name).getAsBoolean();
  }

  private void readModel(JsonReader json) throws IOException {
    json.beginObject();
    while (json.hasNext()) {
      String name = json.nextName();
      switch (name) {
        case "vocab" -> {
          if (json.peek() != JsonToken.BEGIN_OBJECT) {
            throw new IllegalArgumentException("its model.vocab is not that of a BPE tokenizer");
          }
          readVocabObject(json, vocab);
          hasVocab = true;
        }
        case "merges" -> readMerges(json);
        case "type" -> {
          String type = json.nextString(); // absent in old files, GPT-2's own among them
          if (!type.equals("BPE")) {
            throw new IllegalArgumentException("its model is %s, not BPE".formatted(type));
          }
        }
        case "continuing_subword_prefix", "end_of_word_suffix" -> {
          if (json.peek() == JsonToken.NULL) {
            json.nextNull();
          } else if (!json.nextString().isEmpty()) {
            throw new IllegalArgumentException("its %s is not empty, as in GPT-2".formatted(name));
          }
        }
        case "unk_token", "fuse_unk", "byte_fallback", "ignore_merges" ->
            model.add(name, JsonParser.parseReader(json));
        default -> json.skipValue(); // dropout too: it is for training
      }
    }
    json.endObject();
  }

  private static void readVocab(JsonReader json, Map<String, Integer> vocab) throws IOException {
    readVocabObject(json, vocab);
    var _ = json.peek(); // refuses whatever follows the document
  }

  private static void readVocabObject(JsonReader json, Map<String, Integer> vocab)
      throws IOException {
    json.beginObject();
    while (json.hasNext()) {
      String token = json.nextName();
      if (vocab.put(token, json.nextInt()) != null) {
        throw new IllegalArgumentException("token \"%s\" appears twice".formatted(token));
      }
      if (vocab.size() > TokenTable.MAX_ID) {
        throw new IllegalArgumentException("more than %d tokens".formatted(TokenTable.MAX_ID));
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
        String left = json.nextString();
        addMerge(left + " " + json.nextString());
        json.endArray();
      } else {
        addMerge(json.nextString());
      }
    }
    json.endArray();
    hasMerges = true;
  }

  private void readMergesTxt(BufferedReader in) throws IOException {
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      // only the header: "# #" and the like are merges
      if (!line.isEmpty() && !line.startsWith("#version")) {
        addMerge(line);
      }
    }
  }

  private void addMerge(String merge) {
    int space = merge.indexOf(' ');
    if (space < 1 || space != merge.lastIndexOf(' ') || space == merge.length() - 1) {
      throw new IllegalArgumentException(
          "merge %d, \"%s\", is not two tokens with a space between"
              .formatted(merges.size() + 1, merge));
    }
    merges.add(merge);
  }

  /**
   * Beside the pair, fine-tuned models keep new tokens in added_tokens.json (text to id) and say in
   * special_tokens_map.json which tokens are special. GPT-2 itself has neither file.
   */
  private void readAddedTokensOf(Path folder) throws CheckpointException {
    Set<String> specials = new HashSet<>(Set.of(END_OF_TEXT));
    Path map = folder.resolve("special_tokens_map.json");
    if (Files.exists(map)) {
      read(map, in -> addSpecials(JsonParser.parseReader(in), specials));
    }
    Map<String, Integer> newTokens = new HashMap<>();
    Path addedTokens = folder.resolve("added_tokens.json");
    if (Files.exists(addedTokens)) {
      read(addedTokens, in -> readVocab(parser(in), newTokens));
    }
    for (String special : specials) {
      Integer id = vocab.get(special);
      if (id != null) {
        newTokens.putIfAbsent(special, id);
      }
    }
    newTokens.forEach(
        (content, id) ->
            added.add(
                new AddedToken(content, id, specials.contains(content), false, false, false)));
  }

  /** Values are a string, an object with {@code content}, or an array of either. */
  private static void addSpecials(@Nullable JsonElement value, Set<String> specials) {
    switch (value) {
      case JsonArray array -> array.forEach(element -> addSpecials(element, specials));
      case JsonObject object when object.has("content") ->
          addSpecials(object.get("content"), specials);
      case JsonObject object -> object.asMap().values().forEach(v -> addSpecials(v, specials));
      case null -> {}
      default -> {
        if (value.isJsonPrimitive() && value.getAsJsonPrimitive().isString()) {
          specials.add(value.getAsString());
        }
      }
    }
  }
}
