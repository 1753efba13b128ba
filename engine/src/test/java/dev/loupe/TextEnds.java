package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertNotEquals;

import dev.loupe.model.Golden;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A model whose texts come to an end soon. */
public final class TextEnds {
  private TextEnds() {}

  /**
   * The demo model, with another end-of-text token.
   *
   * @param folder for its files
   */
  public static Loupe demoThatEndsAt(int id, Path folder) throws IOException {
    for (String name : new String[] {"model.safetensors", "tokenizer.json"}) {
      Files.copy(Golden.DEMO_MODEL.resolve(name), folder.resolve(name));
    }
    String config = Files.readString(Golden.DEMO_MODEL.resolve("config.json"));
    String changed = config.replaceFirst("\"eos_token_id\": *\\d+", "\"eos_token_id\": " + id);
    assertNotEquals(config, changed);
    Files.writeString(folder.resolve("config.json"), changed);
    return Loupe.open(folder, Options.defaults().backend(Backend.CPU).threads(2));
  }
}
