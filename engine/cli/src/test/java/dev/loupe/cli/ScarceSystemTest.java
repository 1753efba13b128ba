package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.Checkout;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.Terminal;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A system that gives no more files, threads or room: one sentence that says of what. */
class ScarceSystemTest {
  private static final Path LAUNCHER =
      Checkout.ROOT.resolve("scripts/loupe").toAbsolutePath().normalize();

  @TempDir Path folder;

  @Test
  void fewOpenFiles() throws Exception {
    assumeTrue(Files.isExecutable(Path.of("/bin/bash")), "no bash here");
    List<String> command =
        List.of("/bin/bash", "-c", "ulimit -n 20; exec \"$0\" generate a", LAUNCHER.toString());
    new Child(folder)
        .run(command, Map.of())
        .refused(ExitCode.FAILED, "too many open files", "20", "ulimit -n");
  }

  @Test
  void noThreads() {
    OutputStream out =
        new OutputStream() {
          @Override
          public void write(int b) {
            throw new OutOfMemoryError(
                "unable to create native thread: possibly out of memory or process/resource limits"
                    + " reached");
          }
        };
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    Terminal terminal = Terminal.of(InputStream.nullInputStream(), out, err, false);
    assertEquals(ExitCode.OUT_OF_MEMORY, Main.run(terminal, "--version"));
    String said = err.toString(UTF_8);
    assertTrue(said.startsWith("loupe: the system gives no more threads"), said);
    assertEquals(1, said.lines().count(), said);
  }

  /** The tokenizer's library is unpacked somewhere. */
  @Test
  void noTemporaryFolderAndNoHome() throws Exception {
    Path none = folder.resolve("none");
    List<String> command =
        Child.java(
            Main.class,
            List.of("-Djava.io.tmpdir=" + none, "-Duser.home=/dev/null"),
            "attention",
            "a",
            "--backend",
            "cpu");
    Ran ran =
        new Child(folder).run(command, Map.of("LOUPE_CACHE", "/dev/null/x", "XDG_CACHE_HOME", ""));
    assertEquals(ExitCode.BAD_INPUT, ran.code(), ran.err());
    String said =
        ran.err().lines().filter(line -> line.startsWith("loupe:")).findFirst().orElse("");
    assertTrue(said.contains(none + "/loupe-") && said.contains("does not exist"), ran.err());
    assertTrue(said.contains("LOUPE_CACHE"), said);
    assertTrue(!ran.err().contains("Exception"), ran.err());
  }
}
