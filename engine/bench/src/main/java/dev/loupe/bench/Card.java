package dev.loupe.bench;

import dev.loupe.Loupe;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/**
 * What is said of a GPU beside times.
 *
 * @param launches kernels of a decoding step, with the first of the kinds of maps; empty on the CPU
 *     and for a prompt
 * @param copy bytes a second that it reads and writes while it copies its own memory; empty on the
 *     CPU and an emulated card
 */
public record Card(OptionalLong launches, OptionalDouble copy) {
  static final Card NONE = new Card(OptionalLong.empty(), OptionalDouble.empty());

  /** After runs, whose first step launched so many. */
  static Card of(Loupe loupe, OptionalLong launches) {
    boolean emulated = loupe.info().device().contains("emulator"); // whose copies say nothing
    return new Card(launches, emulated ? OptionalDouble.empty() : loupe.copyBytesPerSecond());
  }

  /** What is read and written a second, in percent of what it copies; empty if that is. */
  OptionalDouble percentOfCopy(Measured of) {
    return copy.isPresent()
        ? OptionalDouble.of(100 * Measured.GIGA * of.gigabytesPerSecond() / copy.getAsDouble())
        : OptionalDouble.empty();
  }
}
