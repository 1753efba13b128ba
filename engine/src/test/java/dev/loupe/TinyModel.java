package dev.loupe;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.model.Golden;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.function.Consumer;

/** A model of random weights with the demo model's tokenizer, and ways to break it. */
public record TinyModel(Path folder) {

  public static TinyModel in(Path folder) throws IOException {
    RandomCheckpoint.write(RandomCheckpoint.Size.TINY, 7, folder, Progress.NONE);
    Files.copy(Golden.DEMO_MODEL.resolve("tokenizer.json"), folder.resolve("tokenizer.json"));
    return new TinyModel(folder);
  }

  /** One of 13 layers of 12 heads that reads 1,040 tokens: about GPT-2's, but 96 wide. */
  public static TinyModel withManyHeads(Path folder) throws IOException {
    Gpt2Config config =
        new Gpt2Config(
            13, 12, 96, 1040, 1024, 384, Activation.GELU_NEW, 1e-5f, true, false, 1023, 1023);
    RandomCheckpoint.write(config, 3, folder, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    Files.copy(Golden.DEMO_MODEL.resolve("tokenizer.json"), folder.resolve("tokenizer.json"));
    return new TinyModel(folder);
  }

  /**
   * One whose vocabulary has 1,024 tokens, a gap, token 1030, and a gap up to row 1100. Row 1050 is
   * large and row 1051 its opposite, so that one of the two has the largest logit of all.
   */
  public static TinyModel padded(Path folder) throws IOException {
    Gpt2Config config =
        new Gpt2Config(3, 2, 48, 40, 1101, 130, Activation.GELU_NEW, 1e-5f, true, false, 1023, 7);
    RandomCheckpoint.write(config, 3, folder, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    String json = Files.readString(Golden.DEMO_MODEL.resolve("tokenizer.json"));
    JsonObject tokenizer = JsonParser.parseString(json).getAsJsonObject();
    tokenizer
        .getAsJsonArray("added_tokens")
        .add(
            JsonParser.parseString(
                "{'id': 1030, 'content': '<pad>', 'single_word': false, 'lstrip': false,"
                    + " 'rstrip': false, 'normalized': false, 'special': true}"));
    Files.writeString(folder.resolve("tokenizer.json"), tokenizer.toString());
    TinyModel model = new TinyModel(folder);
    for (int c = 0; c < 48; c++) {
      float value = c % 3 == 0 ? 900 : -500;
      model.poke("wte.weight", 1050 * 48 + c, value);
      model.poke("wte.weight", 1051 * 48 + c, -value);
    }
    return model;
  }

  /** One of random weights that comes without a tokenizer. */
  public static TinyModel ofIds(Path folder) throws IOException {
    Gpt2Config config =
        new Gpt2Config(3, 2, 48, 40, 333, 130, Activation.GELU_NEW, 1e-5f, true, false, 0, 332);
    RandomCheckpoint.write(config, 3, folder, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    return new TinyModel(folder);
  }

  public Path weights() {
    return folder.resolve("model.safetensors");
  }

  public Path config() {
    return folder.resolve("config.json");
  }

  public Path tokenizer() {
    return folder.resolve("tokenizer.json");
  }

  public void config(String from, String to) throws IOException {
    replace(config(), from, to);
  }

  public static void replace(Path file, String from, String to) throws IOException {
    String text = Files.readString(file);
    if (!text.contains(from)) {
      throw new IllegalArgumentException(from + " is not in " + text);
    }
    Files.writeString(file, text.replace(from, to));
  }

  /** Changes the weights file's header; the data stays. */
  public void header(Consumer<JsonObject> change) throws IOException {
    byte[] file = Files.readAllBytes(weights());
    JsonObject header = JsonParser.parseString(headerOf(file)).getAsJsonObject();
    change.accept(header);
    byte[] text = header.toString().getBytes(UTF_8);
    byte[] data = Arrays.copyOfRange(file, dataStart(file), file.length);
    ByteBuffer changed =
        ByteBuffer.allocate(8 + text.length + data.length).order(ByteOrder.LITTLE_ENDIAN);
    Files.write(weights(), changed.putLong(text.length).put(text).put(data).array());
  }

  /** Gives one weight another value. */
  public void poke(String tensor, int element, float value) throws IOException {
    byte[] file = Files.readAllBytes(weights());
    int begin =
        JsonParser.parseString(headerOf(file))
            .getAsJsonObject()
            .getAsJsonObject(tensor)
            .getAsJsonArray("data_offsets")
            .get(0)
            .getAsInt();
    ByteBuffer.wrap(file)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putFloat(dataStart(file) + begin + Float.BYTES * element, value);
    Files.write(weights(), file);
  }

  private static String headerOf(byte[] file) {
    return new String(file, 8, dataStart(file) - 8, UTF_8);
  }

  private static int dataStart(byte[] file) {
    return 8 + (int) ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).getLong();
  }
}
