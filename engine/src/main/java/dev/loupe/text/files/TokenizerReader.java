package dev.loupe.text.files;

import com.google.gson.JsonElement;
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
import java.nio.file.Path;
import java.util.List;
import java.util.Set;

/** Reads a tokenizer from the files that hold its vocabulary. */
final class TokenizerReader {
  private static final int MAX_BYTES = 128 << 20; // the largest today has 35 million
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
  private static final int MOST_VALUES = 1 << 16; // of the steps, and of what an added token says

  private final TokenizerJson tokenizer = new TokenizerJson();
  private boolean hasVocab;
  private boolean hasType;

  private TokenizerReader() {}

  /**
   * Reads a tokenizer.json.
   *
   * @throws CheckpointException if it is broken, or has steps that can't be taken
   */
  static TokenizerJson readJson(Path file) throws CheckpointException {
    TokenizerReader reader = new TokenizerReader();
    read(
        file,
        in ->
            in.json(
                json -> {
                  reader.readTokenizerJson(json);
                  return reader;
                }));
    return reader.tokenizer;
  }

  /**
   * Reads OpenAI's pair of files, of a byte-level BPE.
   *
   * @param vocab token to id, as JSON
   * @param merges a merge on each line
   * @throws CheckpointException if one is broken
   */
  static TokenizerJson readPair(Path vocab, Path merges) throws CheckpointException {
    TokenizerReader reader = new TokenizerReader();
    read(
        vocab,
        in ->
            in.json(
                json -> {
                  reader.readVocab(json);
                  return reader;
                }));
    read(merges, in -> in.lines(reader::readMerge));
    reader.tokenizer.beByteLevel(false);
    return reader.tokenizer;
  }

  /**
   * Reads BERT's vocab.txt, a token on each line.
   *
   * @throws CheckpointException if it is broken
   */
  static TokenizerJson readVocabTxt(Path file) throws CheckpointException {
    TokenizerJson tokenizer = new TokenizerJson();
    tokenizer.model = TokenizerJson.Model.WORD_PIECE;
    read(
        file,
        in -> {
          int[] id = {0};
          // of two that are the same the later counts, as there
          in.lines(line -> tokenizer.addToken(line, id[0]++));
        });
    return tokenizer;
  }

  /**
   * A file as it is.
   *
   * @throws CheckpointException if it can't be read
   */
  static byte[] bytes(Path file) throws CheckpointException {
    return open(file).array();
  }

  private static InputFile open(Path file) throws CheckpointException {
    return InputFile.read(file, MAX_BYTES, "a tokenizer");
  }

  /** What is made of one file; whatever it throws becomes a sentence that names the file. */
  private interface Reading {
    void run(InputFile in) throws CheckpointException;
  }

  private static void read(Path path, Reading reading) throws CheckpointException {
    InputFile file = open(path);
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
        case "normalizer" -> tokenizer.normalizer = part(json, "its normalizer");
        case "pre_tokenizer" -> tokenizer.preTokenizer = part(json, "its pre_tokenizer");
        case "post_processor" -> tokenizer.postProcessor = part(json, "its post_processor");
        case "decoder" -> tokenizer.decoder = part(json, "its decoder");
        case "model" -> readModel(json);
        default -> json.skipValue();
      }
    }
    json.endObject();
    checkModel();
    Steps.check(tokenizer.normalizer, tokenizer.preTokenizer);
    Spelling.check(tokenizer.decoder);
    var _ = PostProcessor.of(tokenizer.postProcessor);
  }

  private void checkModel() {
    TokenizerJson.Model model = tokenizer.model;
    if (!hasVocab || (model == TokenizerJson.Model.BPE && !tokenizer.hasMerges)) {
      throw new IllegalArgumentException(
          "it has no %s, as a tokenizer of the kind %s must"
              .formatted(hasVocab ? "model.merges" : "model.vocab", model.type()));
    }
    if ((model == TokenizerJson.Model.UNIGRAM) == tokenizer.scores().isEmpty()) {
      throw new IllegalArgumentException(
          "its model.vocab is not that of a %s model".formatted(model.type()));
    }
    for (String affix : List.of("continuing_subword_prefix", "end_of_word_suffix")) {
      JsonElement value = tokenizer.settings().get(affix);
      boolean isGiven =
          value != null && !value.isJsonNull() && !JsonValue.text(value, affix).isEmpty();
      if (isGiven && tokenizer.isByteLevel()) {
        throw new IllegalArgumentException("its %s is not empty, as in GPT-2".formatted(affix));
      }
    }
  }

  private void readAddedTokens(JsonReader json) throws IOException {
    json.beginArray();
    while (json.hasNext()) {
      JsonObject token = JsonValue.object(part(json, "an added token"), "an added token");
      String content = JsonValue.text(token.get("content"), "content of an added token");
      boolean special = JsonValue.flag(token, "special", false);
      if (tokenizer.added().size() == Vocabulary.MOST_TOKENS) {
        throw new IllegalArgumentException(
            "more than %d added tokens".formatted(Vocabulary.MOST_TOKENS));
      }
      int id =
          JsonValue.whole(
              token.get("id"), "id of added token \"%s\"".formatted(StrictJson.shown(content)));
      tokenizer.added().add(AddedToken.of(content, id, special, token));
    }
    json.endArray();
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
            readVocab(json);
          }
          hasVocab = true;
        }
        case "merges" -> readMerges(json);
        case "type" -> {
          tokenizer.model = TokenizerJson.Model.named(StrictJson.string(json, "its model's type"));
          hasType = true;
        }
        default -> {
          if (MODEL_SETTINGS.contains(name)) {
            tokenizer.set(name, part(json, name));
          } else if (name.equals("dropout") && json.peek() != JsonToken.NULL) {
            tokenizer.hasDropout = json.nextDouble() > 0;
          } else {
            json.skipValue(); // what later versions may add
          }
        }
      }
    }
    json.endObject();
    if (!hasType) { // in old files, GPT-2's own among them
      tokenizer.model =
          !tokenizer.scores().isEmpty()
              ? TokenizerJson.Model.UNIGRAM
              : tokenizer.settings().has("max_input_chars_per_word")
                  ? TokenizerJson.Model.WORD_PIECE
                  : TokenizerJson.Model.BPE;
    }
  }

  private void readPieces(JsonReader json) throws IOException {
    json.beginArray();
    while (json.hasNext()) {
      json.beginArray();
      tokenizer.addPiece(
          StrictJson.string(json, "a piece of its model"),
          JsonValue.real(part(json, "a score"), "the score of a piece"));
      json.endArray();
    }
    json.endArray();
  }

  private void readVocab(JsonReader json) throws IOException {
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
      tokenizer.addNewToken(token, id.intValue());
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
        tokenizer.addMerge(left + " " + StrictJson.string(json, "a part of a merge"));
        json.endArray();
      } else {
        tokenizer.addMerge(StrictJson.string(json, "a merge"));
      }
    }
    json.endArray();
    tokenizer.hasMerges = true;
  }

  private void readMerge(String line) {
    // only the header: "# #" and the like are merges
    if (!line.isEmpty() && !line.startsWith("#version")) {
      tokenizer.addMerge(line);
    }
  }
}
