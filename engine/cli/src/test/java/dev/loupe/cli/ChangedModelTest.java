package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A model that another program writes to while it is in use. */
class ChangedModelTest {
  @TempDir Path folder;
  private TinyModel model;
  private Path made;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.withManyHeads(folder.resolve("model"));
    made = Files.createDirectory(folder.resolve("made"));
  }

  /** Changes the model once the first token is written; a token takes milliseconds. */
  private void changed(Change change) throws Exception {
    Child child = new Child(folder);
    Process process =
        child.start(
            Child.java(
                Main.class,
                List.of(),
                "generate",
                "The",
                "-n",
                300,
                "--backend",
                "cpu",
                "--threads",
                2,
                "-m",
                model.folder(),
                "--attention",
                made.resolve("a.npz")));
    assertTrue(process.getInputStream().read() >= 0, child::saidSafely);
    change.make();
    process.getInputStream().readAllBytes();
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    String said = child.said();
    assertEquals(ExitCode.BAD_INPUT, process.exitValue(), said);
    assertTrue(said.contains(model.weights() + " was changed by another program"), said);
    assertFalse(said.contains("defect") || said.contains("Exception"), said);
    assertEquals(List.of(), Ran.names(made), "what was computed is worth nothing");
    assertFalse(Files.exists(Path.of("hs_err_pid" + process.pid() + ".log")), "a crash of Java");
  }

  private interface Change {
    void make() throws IOException;
  }

  private void cutTo(long bytes) throws IOException {
    try (RandomAccessFile file = new RandomAccessFile(model.weights().toFile(), "rw")) {
      file.setLength(bytes);
    }
  }

  @Tag("sweep")
  @Test
  void cutToHalf() throws Exception {
    changed(() -> cutTo(Files.size(model.weights()) / 2));
  }

  @Test
  void cutToNothing() throws Exception {
    changed(() -> cutTo(0));
  }

  @Test
  void writtenInPlace() throws Exception {
    changed(
        () -> {
          try (RandomAccessFile file = new RandomAccessFile(model.weights().toFile(), "rw")) {
            file.seek(file.length() - 4);
            file.writeInt(0);
          }
        });
  }
}
