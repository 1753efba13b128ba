package dev.loupe.cuda.emulator;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Thirty known bugs, one at a time in the attention kernels, must all be caught. */
@Tag("sweep")
final class MutationCheckTest {
  @Test
  void everyMutantIsCaught() throws Exception {
    EmulatorScript.run("mutations.sh");
  }
}
