package dev.loupe.spark;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.corpus.CorpusException;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/** What a folder of ours says of itself: {@value #NAME}, one JSON object, on any file system. */
final class Description {
  /** Spark's readers pass over names that begin like this. */
  static final String NAME = "_loupe.json";

  static final String TOKENS_OF_WAVES = "tokens_of_waves";

  private static final Set<String> OF_PREPARED =
      Set.of(
          "id",
          "context",
          "vocabulary_sha256",
          "shards",
          "waves",
          "documents",
          "windows",
          "failed");

  private static final int MOST_BYTES = 16 << 20; // thousands of inputs, each with its path

  private static final Gson GSON =
      new GsonBuilder().setPrettyPrinting().disableHtmlEscaping().serializeNulls().create();

  private Description() {}

  /**
   * @return empty if the folder has none
   * @throws CorpusException if it can't be understood
   */
  static Optional<JsonObject> read(Path folder, Configuration hadoop) throws IOException {
    Path file = new Path(folder, NAME);
    FileSystem files = FileSystems.of(file, hadoop);
    if (!files.exists(file)) {
      return Optional.empty();
    }
    FileSystems.requireRegular(file);
    byte[] bytes;
    try (var in = files.open(file)) {
      bytes = in.readNBytes(MOST_BYTES);
    }
    try {
      JsonElement read =
          StrictJson.parse(
              NAME,
              MemorySegment.ofArray(bytes),
              in -> StrictJson.tree(in, NAME, StrictJson.MOST_VALUES));
      return Optional.of(checked(JsonValue.object(read, NAME)));
    } catch (CheckpointException | IllegalArgumentException e) {
      throw new CorpusException("%s is broken: prepare or run anew".formatted(file), e);
    }
  }

  /**
   * Facts of which those that are read again are of the kind that Loupe writes.
   *
   * @throws IllegalArgumentException if one is not
   */
  private static JsonObject checked(JsonObject facts) {
    for (String name : List.of("id", "vocabulary_sha256")) {
      if (facts.has(name)) {
        JsonValue.text(facts.get(name), name);
      }
    }
    for (String name : List.of("context", "shards", "waves")) {
      if (facts.has(name) && JsonValue.whole(facts.get(name), name) < 1) {
        throw new IllegalArgumentException(name + " is less than 1");
      }
    }
    for (String name : List.of("documents", "windows", "failed")) {
      if (facts.has(name)) {
        natural(facts.get(name), name);
      }
    }
    if (facts.has(TOKENS_OF_WAVES)) { // a preparation that is finished
      JsonArray tokens = JsonValue.array(facts.get(TOKENS_OF_WAVES), TOKENS_OF_WAVES);
      tokens.forEach(each -> natural(each, TOKENS_OF_WAVES));
      if (!facts.keySet().containsAll(OF_PREPARED)
          || tokens.size() != facts.get("waves").getAsInt()) {
        throw new IllegalArgumentException("it says less than a preparation");
      }
    }
    return facts;
  }

  private static void natural(JsonElement value, String name) {
    Long number = StrictJson.wholeNumber(value.toString());
    if (number == null || number < 0) {
      throw new IllegalArgumentException(name + " is no number of things");
    }
  }

  /** Replaces what the folder says, whole or not at all. */
  static void write(Path folder, JsonObject what, Configuration hadoop) throws IOException {
    Path file = new Path(folder, NAME);
    Path part = new Path(folder, NAME + ".part");
    FileSystem files = FileSystems.of(file, hadoop);
    try (OutputStream out = files.create(part, true)) {
      out.write((GSON.toJson(what) + "\n").getBytes(StandardCharsets.UTF_8));
    }
    FileContext.getFileContext(files.makeQualified(file).toUri(), hadoop)
        .rename(files.makeQualified(part), files.makeQualified(file), Options.Rename.OVERWRITE);
  }

  /** A name for what has these facts: the beginning of their SHA-256, as hexadecimal digits. */
  static String nameOf(Map<String, ?> facts) {
    return sha256(new Gson().toJson(facts).getBytes(StandardCharsets.UTF_8)).substring(0, 16);
  }

  static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java runtime has SHA-256", e);
    }
  }
}
