package dev.loupe.spark;

import dev.loupe.ops.BackendException;
import java.util.Arrays;

/** What Loupe needs of Java and Spark. */
final class Versions {
  /** Before it, Java 25 has a defect of its G1 collector that ends in wrong objects. */
  static final Runtime.Version JAVA = Runtime.Version.parse("25.0.3");

  /** Those before it fail on Java 25 at their first file. */
  static final String SPARK = "4.2";

  private Versions() {}

  /**
   * @param where whose versions these are, e.g. {@code the driver}
   * @throws BackendException if one is too old
   */
  static void check(String where, Runtime.Version java, String spark) {
    if (java.compareToIgnoreOptional(JAVA) < 0) {
      throw new BackendException(
          "%s runs on Java %s: %s or newer is needed (JAVA_HOME, spark.executorEnv.JAVA_HOME)"
              .formatted(where, numbers(java), numbers(JAVA)));
    }
    if (Arrays.compare(parts(spark), parts(SPARK)) < 0) {
      throw new BackendException(
          "%s runs Spark %s: %s or newer is needed".formatted(where, spark, SPARK));
    }
  }

  private static String numbers(Runtime.Version version) {
    return String.join(".", version.version().stream().map(String::valueOf).toList());
  }

  /** Major and minor number. */
  private static int[] parts(String version) {
    return Arrays.stream(version.split("[^0-9]+"))
        .filter(part -> !part.isEmpty())
        .limit(2)
        .mapToInt(Integer::parseInt)
        .toArray();
  }
}
