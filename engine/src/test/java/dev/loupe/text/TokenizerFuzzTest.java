package dev.loupe.text;

import dev.loupe.weights.Fuzzing;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files that a fuzzer came upon, for all that a tokenizer is read from. */
class TokenizerFuzzTest {
  @TempDir Path folder;

  @Test
  void whatWasFoundIsReadOrRefused() throws IOException {
    Fuzzing.replay(TokenizerTargets.all(folder), TokenizerTargets.seeds());
  }

  @Test
  @Tag("exhaustive")
  void nothingElseIsFound() throws Exception {
    Fuzzing.fuzz(TokenizerTargets.class, TokenizerTargets.seeds(), folder);
  }
}
