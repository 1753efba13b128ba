package dev.loupe.text;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Checkout;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Where the repository's test data lies, and how to read it. */
public final class TestData {
  public static final Path ROOT = Checkout.TEST_DATA;
  public static final Path GPT2 = ROOT.resolve("gpt2");
  public static final Path SHAKESPEARE = ROOT.resolve("shakespeare");

  private TestData() {}

  public static JsonElement json(Path file) throws IOException {
    return JsonParser.parseString(Files.readString(file));
  }

  public static int[] ids(JsonObject object) {
    return object.getAsJsonArray("ids").asList().stream().mapToInt(JsonElement::getAsInt).toArray();
  }
}
