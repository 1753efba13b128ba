package dev.loupe.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@OnDevice
@Timeout(60)
class SelfTestTest {
  @Test
  void everyFamilyIsRight() {
    try (Gpu gpu = Emulator.open()) {
      for (String family : SelfTest.families()) {
        SelfTest.Finding finding = SelfTest.of(gpu, family);
        System.out.println(family + " " + finding.text());
        assertTrue(finding.isRight(), finding.toString());
        assertTrue(finding.text().startsWith("ok: " + finding.comparisons()), finding.toString());
        assertEquals(List.of(), gpu.liveBuffers());
      }
    }
  }
}
