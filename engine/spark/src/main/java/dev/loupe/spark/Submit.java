package dev.loupe.spark;

import dev.loupe.cli.Main;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** What spark-submit starts: {@code prepare}, {@code run} or {@code report} and their options. */
public final class Submit {
  private Submit() {}

  /** As {@code loupe corpus}; a cluster's manager learns by the exit code whether it worked. */
  public static void main(String[] args) {
    List<String> all = new ArrayList<>(List.of("corpus"));
    all.addAll(Arrays.asList(args));
    Main.main(all.toArray(String[]::new));
  }
}
