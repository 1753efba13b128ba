package dev.loupe.bench.kernel.report;

import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Shape;
import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * What is held against each other: the variants on one shape in one precision, as the ladder goes.
 */
record Group(Shape shape, Precision precision, List<Measurement> all) {
  private record Key(Shape shape, Precision precision) {}

  Group {
    all = List.copyOf(all);
  }

  /** In the order in which they come first. */
  static List<Group> of(List<Measurement> measurements) {
    Map<Key, List<Measurement>> groups = new LinkedHashMap<>();
    for (Measurement each : measurements) {
      groups
          .computeIfAbsent(new Key(each.shape(), each.precision()), k -> new ArrayList<>())
          .add(each);
    }
    return groups.entrySet().stream()
        .map(e -> new Group(e.getKey().shape, e.getKey().precision, e.getValue()))
        .toList();
  }

  /** {@code left out}. */
  static String small(Enum<?> constant) {
    return constant.name().toLowerCase(Locale.ROOT).replace('_', ' ');
  }

  /** {@code T=512 H=12 D=64 in f32}. */
  String name() {
    return shape + " in " + small(precision);
  }

  List<Measurement> timed() {
    return all.stream().filter(m -> m.status() == Measurement.Status.OK).toList();
  }

  /** What the others are held against: the first of the ladder that is right; null if none is. */
  @Nullable Measurement base() {
    return timed().isEmpty() ? null : timed().getFirst();
  }

  /** By the median; null if there are no times. */
  @Nullable Measurement fastest() {
    Measurement fastest = base();
    for (Measurement each : timed()) {
      if (fastest == null || each.times().median() < fastest.times().median()) {
        fastest = each;
      }
    }
    return fastest;
  }

  /** Variants that the spread does not tell from the fastest. */
  List<String> level() {
    Measurement fastest = fastest();
    return timed().stream()
        .filter(m -> fastest != null && !m.equals(fastest) && !m.differs(fastest))
        .map(Measurement::variant)
        .toList();
  }

  /** How many times as fast as the base. */
  double speedUp(Measurement measurement) {
    Measurement base = base();
    return base == null ? Double.NaN : base.times().median() / measurement.times().median();
  }

  /** Whether ceilings were measured. */
  static boolean hasRoofline(Measurement measurement) {
    double bytes = measurement.roofline().bytesPerSecond();
    double operations = measurement.roofline().operationsPerSecond();
    return bytes > 0 && operations > 0 && Double.isFinite(bytes) && Double.isFinite(operations);
  }

  /** Whether memory is what ends this work's speed; without ceilings, as on most machines. */
  static boolean memoryBound(Measurement measurement) {
    double usual = 4; // operations a byte
    double knee =
        hasRoofline(measurement)
            ? measurement.roofline().operationsPerSecond() / measurement.roofline().bytesPerSecond()
            : usual;
    return measurement.work().intensity() < knee;
  }

  /** What ends the speed of this work, as a sentence; empty where nobody knows. */
  String limit() {
    Measurement fastest = fastest();
    if (fastest == null || !hasRoofline(fastest)) {
      return "";
    }
    return "%s operations for each byte: %s"
        .formatted(
            Unit.digits(fastest.work().intensity()),
            memoryBound(fastest)
                ? "memory is the limit, not arithmetic."
                : "arithmetic is the limit, not memory.");
  }

  /**
   * Who won, in a sentence.
   *
   * @param place of what the ceilings are: this machine, this card
   */
  String verdict(String place) {
    Measurement base = base();
    Measurement fastest = fastest();
    if (base == null || fastest == null) {
      return "No variant has times here.";
    }
    String best =
        hasRoofline(fastest)
            ? "; %s of what %s can do".formatted(Unit.percent(fastest.ofRoofline()), place)
            : "";
    List<String> level = level();
    String speed =
        fastest.equals(base)
            ? ""
            : ": %s as fast as %s".formatted(times(speedUp(fastest)), base.variant());
    if (!level.isEmpty()) {
      return "%s is ahead%s, but too little to tell from %s%s."
          .formatted(fastest.variant(), speed, String.join(", ", level), best);
    }
    if (timed().size() == 1) {
      return "Only %s has times here%s.".formatted(fastest.variant(), best);
    }
    return fastest.equals(base)
        ? "%s wins: no other is faster%s.".formatted(fastest.variant(), best)
        : "%s wins%s%s.".formatted(fastest.variant(), speed, best);
  }

  /** {@code 4.3 times}. */
  private static String times(double ratio) {
    return String.format(Locale.ROOT, ratio < 9.95 ? "%.1f times" : "%.0f times", ratio);
  }

  /** The ideas of all variants, each once, by their names. */
  static Map<String, String> ideas(List<Measurement> measurements) {
    return measurements.stream()
        .collect(
            Collectors.toMap(
                Measurement::variant, Measurement::idea, (a, b) -> a, LinkedHashMap::new));
  }
}
