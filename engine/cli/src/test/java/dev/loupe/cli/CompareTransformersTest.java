package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.Checkout;
import dev.loupe.cli.terminal.ExitCode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@code scripts/compare-transformers}, where python3 finds transformers. */
class CompareTransformersTest {
  private static final String SCRIPT =
      Checkout.ROOT.resolve("scripts/compare-transformers").toString();

  @TempDir Path folder;

  private static Ran run(String... words) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(words).redirectErrorStream(true).start();
    process.getOutputStream().close();
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    return new Ran(process.waitFor(), out, "");
  }

  private static boolean works(String... words) throws InterruptedException {
    try {
      return run(words).code() == 0;
    } catch (IOException e) {
      return false;
    }
  }

  @BeforeEach
  void python() throws Exception {
    assumeTrue(works("python3", "-c", "pass"), "python3 is not installed here");
  }

  @Test
  void saysThatTransformersIsMissing() throws Exception {
    Ran ran = run("python3", "-S", "-I", SCRIPT); // Python's own modules only
    assertEquals(1, ran.out().lines().count(), ran.out());
    assertTrue(ran.out().contains("transformers is missing for"), ran.out());
    assertEquals(ExitCode.NO_BACKEND, ran.code());
  }

  @Test
  void everyCheckpointIsComputedAlike() throws Exception {
    assumeTrue(
        works("python3", "-c", "import torch, transformers, numpy"),
        "python3 has no transformers: pip install torch transformers numpy");
    List<String> command = new ArrayList<>(Child.java(Main.class, List.of()));
    String quoted = command.stream().map(w -> "'" + w + "'").collect(Collectors.joining(" "));
    Path loupe =
        Files.createFile(
            folder.resolve("loupe"),
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    Files.writeString(loupe, "#!/bin/sh\nexec %s \"$@\"\n".formatted(quoted));
    Ran ran = run("python3", SCRIPT, "--loupe", loupe.toString());
    System.out.println(ran.out());
    assertEquals(0, ran.code(), ran.out());
  }
}
