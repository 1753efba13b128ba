package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * After every test: the emulated driver returned no error that nobody asked about. What remains
 * when a process ends makes it fail, too; this says in which test it was.
 */
public final class UnreportedErrors implements AfterEachCallback {
  private static final boolean EMULATED = EmulatedGpu.isDriver();

  @Override
  public void afterEach(ExtensionContext context) {
    if (EMULATED) {
      EmulatedGpu.revive(); // an error that ends CUDA in its process is the test's own
      assertEquals("", EmulatedGpu.unreported(), "an error of the driver that nobody reported");
    }
  }
}
