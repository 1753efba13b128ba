package dev.loupe.model;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Checkout;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** One prompt of test-data/golden; its README gives the format. */
public record Golden(String name, JsonObject meta) {
  public static final Path TEST_DATA = Checkout.TEST_DATA;
  public static final Path DEMO_MODEL = TEST_DATA.resolve("shakespeare");

  public static List<Golden> all() {
    return List.of("one", "romeo", "window", "unicode", "t33", "repeat", "t65", "full256").stream()
        .map(Golden::of)
        .toList();
  }

  public static Golden of(String name) {
    try {
      String json =
          Files.readString(TEST_DATA.resolve("golden").resolve(name).resolve("meta.json"));
      return new Golden(name, JsonParser.parseString(json).getAsJsonObject());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public String toString() {
    return name;
  }

  public int[] ids() {
    return ints("ids");
  }

  public int[] ints(String key) {
    JsonArray array = meta.getAsJsonArray(key);
    int[] ints = new int[array.size()];
    for (int i = 0; i < ints.length; i++) {
      ints[i] = array.get(i).getAsInt();
    }
    return ints;
  }

  public boolean has(String file) {
    return Files.exists(TEST_DATA.resolve("golden").resolve(name).resolve(file + ".f32"));
  }

  public float[] floats(String file) {
    try {
      byte[] bytes =
          Files.readAllBytes(TEST_DATA.resolve("golden").resolve(name).resolve(file + ".f32"));
      float[] floats = new float[bytes.length / 4];
      ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(floats);
      return floats;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
