package dev.loupe.kernels;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Objects;

/** What the code under test says when it refuses something. */
final class Refusal {
  private Refusal() {}

  /** The message of the {@link GpuException} that {@code attempt} must throw. */
  static String of(Runnable attempt) {
    return Objects.requireNonNull(assertThrows(GpuException.class, attempt::run).getMessage());
  }
}
