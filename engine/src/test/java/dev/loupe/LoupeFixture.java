package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** The demo model, opened for whole runs. */
abstract class LoupeFixture {
  static Loupe loupe;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().threads(2));
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  static Generation one(GenerateRequest request) {
    return loupe.run(request).getFirst();
  }

  static int[] ids(Generation run) {
    return run.tokens().stream().mapToInt(Token::id).toArray();
  }

  static void refused(Consumer<GenerateRequest> change, GenerateRequest request, String... words) {
    change.accept(request);
    String message =
        assertThrows(IllegalArgumentException.class, () -> loupe.run(request)).toString();
    for (String word : words) {
      assertTrue(message.contains(word), message + " should say " + word);
    }
  }
}
