package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.OnDevice;
import org.junit.jupiter.api.Test;

@OnDevice
class SampleRefusalsTest extends SampleFixture {
  @Test
  void refusesWhatDoesNotFit() {
    try (DeviceBuffer logits = gpu.allocate(Element.F32, 100);
        DeviceBuffer four = gpu.allocate(Element.I32, 4);
        DeviceBuffer options = gpu.allocate(Element.I32, 5L * SampleOptions.INTS);
        DeviceBuffer logprobs = gpu.allocate(Element.F32, 4)) {
      SampleKernels.Chosen chosen = new SampleKernels.Chosen(four, logprobs, four, four);
      assertRefused(
          "sample: logits has 100 elements, needs 125",
          () -> sample(logits, 5, 25, 25, four, options, chosen));
      assertRefused(
          "sample: samples has 4 elements, needs 5",
          () -> sample(logits, 5, 20, 20, four, options, chosen));
      assertRefused(
          "sample: stride is 24, not between 25 and 2147483647",
          () -> sample(logits, 4, 25, 24, four, options, chosen));
      assertRefused(
          "sample: vocabulary is 4194305, not between 1 and 4194304",
          () -> sample(logits, 1, 4194305, 4194305, four, options, chosen));
      assertRefused(
          "sample: seen has 4 elements, needs 6",
          () -> sample(logits, 3, 33, 33, four, options, chosen));
      assertRefused(
          "sample: options has 4 elements, needs 8",
          () -> sample(logits, 1, 20, 20, four, four, chosen));
      assertRefused(
          "softmax: temperature is 0.0, not more than 0",
          () -> kernels.softmax(new SampleKernels.Logits(logits, 1, 100), logits, 0, true));
      SampleKernels.Logits twenty = new SampleKernels.Logits(logits, 5, 20);
      assertRefused(
          "logprobs: ids has 4 elements, needs 5", () -> kernels.logprobs(twenty, four, logprobs));
      assertRefused(
          "argmax: ids holds F32, not I32",
          () -> kernels.argmax(new SampleKernels.Logits(logits, 1, 100), null, logprobs, four));
    }
  }

  private static void sample(
      DeviceBuffer logits,
      int rows,
      int vocabulary,
      int stride,
      DeviceBuffer ints,
      DeviceBuffer options,
      SampleKernels.Chosen chosen) {
    kernels.sample(
        new SampleKernels.Logits(logits, rows, vocabulary, stride),
        null,
        ints,
        ints,
        ints,
        options,
        chosen);
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }
}
