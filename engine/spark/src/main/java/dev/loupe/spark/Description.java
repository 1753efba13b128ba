package dev.loupe.spark;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import dev.loupe.corpus.CorpusException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/** What a folder of ours says of itself: {@value #NAME}, one JSON object, on any file system. */
final class Description {
  /** Spark's readers pass over names that begin like this. */
  static final String NAME = "_loupe.json";

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
    byte[] bytes;
    try (var in = files.open(file)) {
      bytes = in.readAllBytes();
    }
    try {
      JsonElement read = JsonParser.parseString(new String(bytes, StandardCharsets.UTF_8));
      return Optional.of(read.getAsJsonObject());
    } catch (JsonParseException | IllegalStateException e) {
      throw new CorpusException("%s is broken: prepare or run anew".formatted(file), e);
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
