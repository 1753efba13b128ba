package dev.loupe.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class CudaDriverTest {
  @Test
  void saysWhatIsThereAndNeverFails() {
    CudaDriver driver = CudaDriver.find();
    assertEquals(driver.cards().isEmpty(), !driver.problem().isEmpty(), "a card or a reason");
    assertFalse(driver.summary().isBlank());
  }

  @Test
  void readsWellWithAndWithoutACard() {
    assertEquals(
        "not found (libcuda.so.1)",
        new CudaDriver(0, List.of(), "not found (libcuda.so.1)").summary());
    assertEquals(
        "CUDA 12.4, NVIDIA H100", new CudaDriver(12040, List.of("NVIDIA H100"), "").summary());
    assertEquals("CUDA 13.0, no card", new CudaDriver(13000, List.of(), "no card").summary());
    assertTrue(new CudaDriver(13000, List.of("A", "B"), "").summary().endsWith("A, B"));
  }
}
