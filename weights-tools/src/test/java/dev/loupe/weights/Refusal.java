package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import org.junit.jupiter.api.function.Executable;

/** What a message to the user must be: one line, with the words that help. */
public final class Refusal {
  private Refusal() {}

  public static void of(Executable action, Object... words) {
    IOException e = assertThrows(IOException.class, action);
    String message = String.valueOf(e.getMessage());
    for (Object word : words) {
      assertTrue(message.contains(word.toString()), () -> "no <" + word + "> in: " + message);
    }
    assertOneSentence(message);
  }

  static void assertOneSentence(String message) {
    assertFalse(message.isBlank());
    assertTrue(message.chars().noneMatch(Character::isISOControl), message);
    assertTrue(message.length() < 600, message);
    assertFalse(message.contains("http"), message);
    assertFalse(message.contains("Exception"), message);
  }
}
