package dev.loupe.weights;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files that a fuzzer came upon, for all readers of models, their settings and a hub's answers. */
class ReaderFuzzTest {
  @TempDir Path folder;

  @Test
  void whatWasFoundIsReadOrRefused() throws IOException {
    Fuzzing.replay(
        ReaderTargets.all(folder), ReaderTargets.seeds(Files.createDirectory(folder.resolve("s"))));
  }

  @Test
  @Tag("exhaustive")
  void nothingElseIsFound() throws Exception {
    Fuzzing.fuzz(ReaderTargets.class, ReaderTargets.seeds(folder.resolve("seeds")), folder);
  }
}
