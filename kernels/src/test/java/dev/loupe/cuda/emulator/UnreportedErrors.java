package dev.loupe.cuda.emulator;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * After every test: the emulated driver returned no error that nobody asked about. What remains
 * when a process ends makes it fail, too; this says in which test it was.
 */
public final class UnreportedErrors implements AfterEachCallback {
  @Override
  public void afterEach(ExtensionContext context) {
    if (Emulator.isDriver()) {
      String unreported = Emulator.unreported();
      Emulator.forgetErrors();
      Emulator.revive(); // an error that ends CUDA in its process is the test's own
      assertEquals("", unreported, "an error of the driver that nobody reported");
    }
  }
}
