package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * Corpora of files for readers, and Jazzer, which finds further ones by what they make the code do.
 * A corpus lies in {@code src/test/fuzz/TARGET}; what a reader failed on stays in it.
 */
public final class Fuzzing {
  private static final Path CORPORA = Path.of("src/test/fuzz");
  private static final int SECONDS = Integer.getInteger("fuzz.seconds", 4);

  private Fuzzing() {}

  /** Reads the corpora and the seeds. */
  public static void replay(Map<String, FuzzTarget> targets, Map<String, byte[]> seeds)
      throws IOException {
    assertEquals(seeds.keySet(), targets.keySet());
    for (Map.Entry<String, FuzzTarget> target : targets.entrySet()) {
      byte[] seed = Objects.requireNonNull(seeds.get(target.getKey()));
      FuzzTarget.checkBudget(target.getValue(), seed);
      List<Path> files = corpus(target.getKey());
      assertFalse(files.isEmpty(), target.getKey());
      for (Path file : files) {
        try {
          FuzzTarget.checkBudget(target.getValue(), Files.readAllBytes(file));
        } catch (RuntimeException | Error e) {
          throw new AssertionError(file.toString(), e);
        }
      }
    }
  }

  private static List<Path> corpus(String target) throws IOException {
    try (Stream<Path> files = Files.list(CORPORA.resolve(target))) {
      return files.sorted().toList();
    }
  }

  /**
   * Runs Jazzer on each target for {@code -Dfuzz.seconds}, from its corpus and seed on.
   *
   * @param main has fuzzerInitialize, which takes a target's name, and fuzzerTestOneInput
   * @param folder for what it finds
   */
  public static void fuzz(Class<?> main, Map<String, byte[]> seeds, Path folder) throws Exception {
    assumeTrue(isThere(), "Jazzer is not on the class path: -Dexhaustive brings it");
    String only = System.getProperty("fuzz.target", "");
    for (Map.Entry<String, byte[]> seed : seeds.entrySet()) {
      if (!only.isEmpty() && !only.equals(seed.getKey())) {
        continue;
      }
      Path found = Files.createDirectories(folder.resolve(seed.getKey()));
      Files.write(found.resolve("seed"), seed.getValue());
      Path log = folder.resolve(seed.getKey() + ".log");
      Process process =
          new ProcessBuilder(
                  ProcessHandle.current().info().command().orElseThrow(),
                  "--add-modules",
                  "jdk.incubator.vector",
                  "--enable-native-access=ALL-UNNAMED",
                  "-XX:+EnableDynamicAgentLoading",
                  "-Xmx1g",
                  "-cp",
                  System.getProperty("java.class.path"),
                  "com.code_intelligence.jazzer.Jazzer",
                  "--target_class=" + main.getName(),
                  "--target_args=" + seed.getKey(),
                  "--instrumentation_includes=dev.loupe.**",
                  "--custom_hook_includes=none.**", // its detectors look for other things
                  "-max_total_time=" + SECONDS,
                  "-timeout=20",
                  "-rss_limit_mb=4096",
                  "-max_len=100000",
                  "-artifact_prefix=" + folder + "/",
                  found.toString(),
                  CORPORA.resolve(seed.getKey()).toString())
              .redirectErrorStream(true)
              .redirectOutput(log.toFile())
              .start();
      int code = process.waitFor();
      String said = Files.readString(log);
      assertEquals(0, code, () -> seed.getKey() + ": " + said.lines().skip(20).toList());
      assertTrue(said.contains("DONE"), said);
    }
  }

  private static boolean isThere() {
    try {
      Class.forName("com.code_intelligence.jazzer.Jazzer", false, Fuzzing.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }
}
