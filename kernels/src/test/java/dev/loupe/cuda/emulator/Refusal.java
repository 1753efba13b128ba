package dev.loupe.cuda.emulator;

import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.driver.GpuException;
import java.util.Objects;

/** What the code under test says when it refuses something. */
public final class Refusal {
  private Refusal() {}

  /** The message of the {@link GpuException} that {@code attempt} must throw. */
  public static String of(Runnable attempt) {
    return message(GpuException.class, attempt);
  }

  /** The message of the {@link IllegalArgumentException} that {@code attempt} must throw. */
  public static String ofArguments(Runnable attempt) {
    return message(IllegalArgumentException.class, attempt);
  }

  private static String message(Class<? extends Exception> kind, Runnable attempt) {
    return Objects.requireNonNull(assertThrows(kind, attempt::run).getMessage());
  }
}
