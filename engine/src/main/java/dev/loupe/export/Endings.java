package dev.loupe.export;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** Formats known by the endings of file names: the format's name in small letters. */
final class Endings {
  private Endings() {}

  static String of(Enum<?> format) {
    return "." + format.name().toLowerCase(Locale.ROOT);
  }

  /**
   * The one of {@code formats} that the name of {@code file} ends in.
   *
   * @param what can't be written otherwise, for the message
   */
  static <F extends Enum<F>> F named(Path file, F[] formats, String what) {
    String name = String.valueOf(file.getFileName()).toLowerCase(Locale.ROOT);
    for (F format : formats) {
      if (name.endsWith(of(format))) {
        return format;
      }
    }
    throw new IllegalArgumentException(
        "%s cannot be written to %s: its name must end in one of %s"
            .formatted(
                what,
                file,
                Arrays.stream(formats).map(Endings::of).collect(Collectors.joining(" "))));
  }
}
