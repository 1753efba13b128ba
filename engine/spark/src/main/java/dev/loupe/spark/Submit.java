package dev.loupe.spark;

import dev.loupe.cli.Main;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * What spark-submit starts: {@code prepare}, {@code run} or {@code report} and their options.
 *
 * <p>Compiled for Java 17, the oldest that Spark 4 runs on, so that one that is too old for the
 * rest can say so.
 */
public final class Submit {
  private static final String JAVA = "25.0.3"; // as Versions has it, which an old Java can't load
  private static final int NO_BACKEND = 4; // likewise

  private Submit() {}

  /** As {@code loupe corpus}; a cluster's manager learns by the exit code whether it worked. */
  public static void main(String[] args) {
    String refusal = refusal(Runtime.version());
    if (!refusal.isEmpty()) {
      System.err.println("loupe: " + refusal);
      System.exit(NO_BACKEND);
    }
    List<String> all = new ArrayList<>(List.of("corpus"));
    all.addAll(Arrays.asList(args));
    Main.main(all.toArray(String[]::new));
  }

  /** Empty if the driver's Java will do. */
  static String refusal(Runtime.Version java) {
    return java.compareToIgnoreOptional(Runtime.Version.parse(JAVA)) >= 0
        ? ""
        : "the driver runs on Java %s: %s or newer is needed (JAVA_HOME)"
            .formatted(java.toString().replaceAll("[^0-9.].*", ""), JAVA);
  }
}
