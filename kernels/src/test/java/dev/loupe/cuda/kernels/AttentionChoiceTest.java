package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Which variant serves, and what attention refuses. */
@OnDevice
class AttentionChoiceTest {
  private static final int HEADS = AttentionKernelsTest.HEADS;

  private static Gpu gpu;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @Test
  void prefersTensorCoresForHalves() {
    assertEquals("v3", best(Element.F32, 1));
    assertEquals("v4", best(Element.F16, 1));
    assertEquals("v4", best(Element.BF16, 1));
  }

  /** Version 1 has a slice of its grid for each head of each segment. */
  @Test
  void thePlainestServesAsLongAsItsGridDoes() {
    try {
      gpu.use(Serving.PLAIN);
      assertEquals("v1", best(Element.F16, Segments.MAX_GRID / HEADS));
      assertEquals("v2", best(Element.F16, Segments.MAX_GRID / HEADS + 1));
    } finally {
      gpu.use(KernelChoice.UNTRIED);
    }
  }

  private static String best(Element element, int count) {
    CacheShape shape = new CacheShape(1, HEADS, 16, 64);
    try (Segments segments = new Segments(gpu, count);
        AttentionKernels kernels = new AttentionKernels(gpu, shape, element)) {
      segments.set(IntStream.range(0, count).mapToObj(row -> new Segment(row, 1, 0, 0)).toList());
      return kernels.variantFor(segments).name();
    }
  }

  @Test
  void refusesSegmentsThatCannotBe() {
    assertIllegal("0 rows", () -> new Segment(0, 0, 0, 0));
    assertIllegal("row -1", () -> new Segment(-1, 1, 0, 0));
    assertIllegal("position -1", () -> new Segment(0, 1, 0, -1));
    assertIllegal("more than an int", () -> new Segment(0, 2, 0, Integer.MAX_VALUE - 1));
    try (Segments segments = new Segments(gpu, 2)) {
      assertMessage(
          "starts at row 4, before row 5",
          () -> segments.set(List.of(new Segment(0, 5, 0, 0), new Segment(4, 1, 1, 0))));
      Segment one = new Segment(0, 1, 0, 0);
      assertMessage("3, not in 0 .. 2", () -> segments.set(List.of(one, one, one)));
    }
  }

  @Test
  void refusesWhatItCannotDo() {
    CacheShape shape = new CacheShape(1, HEADS, 16, 88);
    assertMessage("i8", () -> new AttentionKernels(gpu, shape, Element.I8));
    int width = shape.width();
    try (AttentionKernels attention = new AttentionKernels(gpu, shape, Element.F16);
        Segments segments = new Segments(gpu, 1);
        DeviceBuffer qkv = gpu.allocate(Element.F16, 4L * 3 * width + 8);
        DeviceBuffer kv = gpu.allocate(Element.F16, shape.elements());
        DeviceBuffer y = gpu.allocate(Element.F16, 4L * width);
        DeviceBuffer lse = gpu.allocate(Element.F32, 4L * HEADS)) {
      var good = new AttentionKernels.Buffers(qkv, kv, kv, y, lse);
      Variant v4 = AttentionKernels.V4;
      segments.set(List.of());
      attention.run(v4, segments, true, 1, good); // nothing to do
      segments.set(List.of(new Segment(0, 5, 0, 0)));
      assertMessage(
          "attention: qkv has 2120 elements, needs 2640",
          () -> attention.run(v4, segments, true, 1, good));
      segments.set(List.of(new Segment(0, 4, 1, 0)));
      assertMessage("sequence of a segment: 1", () -> attention.run(v4, segments, true, 1, good));
      segments.set(List.of(new Segment(0, 4, 0, 13)));
      assertMessage("keys of a segment: 17", () -> attention.run(v4, segments, true, 1, good));
      segments.set(List.of(new Segment(0, 4, 0, 12)));
      attention.run(v4, segments, true, 1, good);
      assertMessage("scale -1.0", () -> attention.run(v4, segments, true, -1, good));
      assertMessage(
          "attention v5: heads 88 wide: it takes head size a multiple of 8 up to 80",
          () -> attention.run(AttentionKernels.V5, segments, true, 1, good));
      var swapped = new AttentionKernels.Buffers(qkv, kv, kv, lse, y);
      assertMessage(
          "attention: y holds F32, not F16", () -> attention.run(v4, segments, true, 1, swapped));
      var odd = new AttentionKernels.Buffers(qkv.slice(1, qkv.elements() - 1), kv, kv, y, lse);
      assertMessage("no multiple of 16", () -> attention.run(v4, segments, true, 1, odd));
      var none = nothing(qkv, kv, lse);
      assertMessage("attention: y is null", () -> attention.run(v4, segments, true, 1, none));
    }
    try (AttentionKernels floats = new AttentionKernels(gpu, shape, Element.F32)) {
      assertTrue(
          floats.reason(AttentionKernels.V4).contains("f32 on compute capability"),
          floats.reason(AttentionKernels.V4));
    }
  }

  @SuppressWarnings("NullAway") // on purpose
  private static AttentionKernels.Buffers nothing(
      DeviceBuffer qkv, DeviceBuffer kv, DeviceBuffer lse) {
    return new AttentionKernels.Buffers(qkv, kv, kv, null, lse);
  }

  private static void assertIllegal(String part, Executable what) {
    String message =
        String.valueOf(assertThrows(IllegalArgumentException.class, what).getMessage());
    assertTrue(message.contains(part), message);
  }

  private static void assertMessage(String part, Runnable what) {
    String message = Refusal.ofArguments(what);
    assertTrue(message.contains(part), message);
  }
}
