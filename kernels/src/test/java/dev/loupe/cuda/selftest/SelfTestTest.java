package dev.loupe.cuda.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.ChildJvm;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@OnDevice
@Timeout(200)
class SelfTestTest {
  /** And every kernel is tested but those of other head sizes. */
  @Tag("sweep")
  @Test
  void everyFamilyIsRight() {
    Set<String> loaded = assertEveryFamilyIsRight();
    if (Emulator.isDriver()) {
      Set<String> missed = new TreeSet<>(Emulator.kernels());
      missed.removeAll(loaded);
      missed.removeIf(name -> name.matches("attention_v[345]_d(?!64_).*|(micro|probe)_.*"));
      assertEquals(Set.of(), missed);
    }
  }

  private static Set<String> assertEveryFamilyIsRight() {
    try (Gpu gpu = Emulator.open()) {
      for (String family : SelfTest.families()) {
        SelfTest.Finding finding = SelfTest.of(gpu, family);
        assertTrue(finding.isRight(), finding.toString());
        assertTrue(finding.text().startsWith("ok: " + finding.results()), finding.toString());
        assertEquals(List.of(), gpu.liveBuffers());
      }
      return Set.copyOf(gpu.loadedKernels());
    }
  }

  /** On a card that has such launches; graphs make the emulator start each kernel early. */
  @Test
  @OnDevice(emulated = true)
  void kernelsThatStartEarlyComputeTheSame() {
    try (Gpu gpu = Emulator.open()) {
      SelfTest.Finding finding = SelfTest.of(gpu, Trial.EARLY, Element.F32);
      assertTrue(finding.isRight(), finding.toString());
    }
  }

  @Test
  @Tag("sweep")
  @OnDevice(emulated = true)
  void anOlderCardIsTestedByWhatItSupports() {
    try {
      Emulator.card(75, -1, -1, -1);
      assertEveryFamilyIsRight();
    } finally {
      Emulator.usualCard();
    }
  }

  /** Tells which results are wrong on a device whose kernels do nothing. */
  static final class WithoutKernels {
    private WithoutKernels() {}

    public static void main(String[] args) {
      try (Gpu gpu = Emulator.open()) {
        for (String family : SelfTest.families()) {
          SelfTest.Finding finding = SelfTest.of(gpu, family);
          System.out.println(
              "%s: %d of %d, %s"
                  .formatted(family, finding.wrong(), finding.results(), finding.text()));
        }
      }
    }
  }

  /** So each comparison can fail. */
  @Test
  @Tag("sweep")
  @OnDevice(emulated = true)
  void everyResultOfAKernelThatDoesNothingIsWrong(@TempDir Path temporary) throws Exception {
    String output = ChildJvm.run(WithoutKernels.class, Map.of("EMU_KERNELS_OFF", "_"), temporary);
    List<String> lines = output.lines().toList();
    assertEquals(SelfTest.families().size() + 1, lines.size(), output);
    for (String line : lines.subList(0, lines.size() - 1)) {
      assertTrue(
          line.matches("\\w+: (\\d+) of \\1, WRONG: \\1 of \\1 results, .+ is .+, not .+"), line);
    }
    assertEquals("exit 0", lines.getLast());
  }

  @Test
  @OnDevice(emulated = true)
  void aGpuThatFailsIsAFinding() {
    try (Gpu gpu = Emulator.open()) {
      Emulator.failKernel(3, 719); // CUDA_ERROR_LAUNCH_FAILED
      SelfTest.Finding finding = SelfTest.of(gpu, "linear");
      assertFalse(finding.isRight());
      assertTrue(finding.text().startsWith("fails: "), finding.text());
      assertTrue(finding.text().contains("CUDA_ERROR_LAUNCH_FAILED"), finding.text());
    }
  }
}
