package dev.loupe.cuda.emulator;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The emulator itself, plain and with the sanitizers: right kernels pass, planted bugs do not. */
@Tag("sweep")
final class EmulatorSelfTest {
  @Test
  void plantedBugsAreFound() throws Exception {
    EmulatorScript.run("check.sh");
  }
}
