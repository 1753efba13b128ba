package dev.loupe.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.opentest4j.AssertionFailedError;

@OnDevice
@Timeout(200)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class DeviceBufferTest {
  private static final int STAGED = 1 << 18; // f32 that pass to the device in one piece

  private final Gpu gpu = Emulator.open();

  @BeforeAll
  void nothingIsThere() {
    assertEquals(0, gpu.liveBuffers().size());
  }

  @AfterAll
  void nothingIsLeft() {
    assertEquals("[]", gpu.liveBuffers().toString());
    gpu.close();
  }

  private static float[] values(int n, long seed) {
    Random random = new Random(seed);
    float[] values = new float[n];
    for (int i = 0; i < n; i++) {
      values[i] = (float) random.nextGaussian();
    }
    return values;
  }

  private static float rounded(Element element, float value) {
    return switch (element) {
      case F32 -> value;
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(value));
      case BF16 -> Element.fromBf16(Element.toBf16(value));
      case I8, I32 -> throw new AssertionFailedError();
    };
  }

  @ParameterizedTest
  @EnumSource(names = {"F32", "F16", "BF16"})
  void keepsWhatItIsGiven(Element element) {
    for (int n : new int[] {1, 31, STAGED - 1, STAGED, 2 * STAGED + 3}) {
      try (DeviceBuffer buffer = gpu.allocate(element, n)) {
        float[] values = values(n, n);
        buffer.upload(values);
        float[] back = new float[n];
        buffer.download(back);
        float[] expected = new float[n];
        for (int i = 0; i < n; i++) {
          expected[i] = rounded(element, values[i]);
        }
        assertArrayEquals(expected, back, element + " " + n);
      }
    }
  }

  @Test
  void halvesHaveTheBitsThatKernelsExpect() {
    try (DeviceBuffer half = gpu.allocate(Element.F16, 3);
        DeviceBuffer brain = gpu.allocate(Element.BF16, 3)) {
      float[] values = {1f, -2f, 1e9f};
      short[] bits = new short[3];
      half.upload(values);
      half.download(MemorySegment.ofArray(bits));
      assertArrayEquals(new short[] {0x3c00, (short) 0xc000, 0x7c00}, bits);
      brain.upload(values);
      brain.download(MemorySegment.ofArray(bits));
      assertArrayEquals(new short[] {0x3f80, (short) 0xc000, 0x4e6e}, bits);
    }
  }

  @Test
  void integersAndBytesPassUnchanged() {
    int n = STAGED + 5;
    int[] ids = new Random(3).ints(n).toArray();
    try (DeviceBuffer buffer = gpu.allocate(Element.I32, n);
        Arena arena = Arena.ofConfined()) {
      buffer.upload(ids);
      int[] back = new int[n];
      buffer.download(back);
      assertArrayEquals(ids, back);

      MemorySegment off = arena.allocate(4L * n, 64);
      buffer.download(off);
      assertEquals(-1, off.mismatch(MemorySegment.ofArray(ids)));
      buffer.fill((byte) 0);
      buffer.upload(off);
      buffer.download(back);
      assertArrayEquals(ids, back);
    }
  }

  @Test
  void aPartIsWrittenAndTheRestStays() {
    try (DeviceBuffer buffer = gpu.allocate(Element.F32, 5)) {
      buffer.fill((byte) 0xff);
      buffer.upload(new float[] {1, 2});
      buffer.upload(new float[0]);
      float[] back = new float[5];
      buffer.download(back);
      assertEquals("[1.0, 2.0, NaN, NaN, NaN]", Arrays.toString(back));
    }
  }

  @Test
  void slicesAreViews() {
    DeviceBuffer whole = gpu.allocate(Element.F16, 10);
    whole.upload(new float[10]);
    DeviceBuffer slice = whole.slice(3, 6).slice(1, 4);
    assertEquals(whole.address() + 8, slice.address());
    assertEquals(4, slice.elements());
    slice.upload(new float[] {1, 2, 3, 4});
    slice.close();
    assertTrue(slice.isLive() && whole.isLive(), "closing a view does nothing");
    float[] back = new float[10];
    whole.download(back);
    assertArrayEquals(new float[] {0, 0, 0, 0, 1, 2, 3, 4, 0, 0}, back);
    slice.fill((byte) 0xff);
    whole.download(back);
    assertTrue(back[3] == 0 && Float.isNaN(back[4]) && Float.isNaN(back[7]) && back[8] == 0);
    whole.close();
    assertFalse(slice.isLive());
    assertTrue(
        Refusal.ofArguments(() -> slice.upload(new float[1])).contains("after it was freed"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"-1 1", "0 0", "0 11", "10 1", "5 6", "1 9223372036854775807", "5 -3"})
  void refusesSlicesOutside(String slice) {
    String[] part = slice.split(" ", 2);
    try (DeviceBuffer whole = gpu.allocate(Element.F32, 10)) {
      String message =
          Refusal.ofArguments(() -> whole.slice(Long.parseLong(part[0]), Long.parseLong(part[1])));
      assertEquals(
          "a buffer of 10 f32 has no slice of %s from %s on".formatted(part[1], part[0]), message);
    }
  }

  @Test
  void refusesWhatDoesNotFit() {
    try (DeviceBuffer floats = gpu.allocate(Element.F32, 4);
        DeviceBuffer ids = gpu.allocate(Element.I32, 4);
        DeviceBuffer bytes = gpu.allocate(Element.I8, 4)) {
      assertEquals(
          "cannot upload 5 f32: a buffer of 4 f32",
          Refusal.ofArguments(() -> floats.upload(new float[5])));
      assertEquals(
          "cannot download 5 f32: a buffer of 4 f32",
          Refusal.ofArguments(() -> floats.download(new float[5])));
      assertEquals(
          "cannot upload 4 i32: a buffer of 4 f32",
          Refusal.ofArguments(() -> floats.upload(new int[4])));
      assertEquals(
          "cannot download 1 f32: a buffer of 4 i32",
          Refusal.ofArguments(() -> ids.download(new float[1])));
      assertEquals(
          "cannot upload 1 f32: a buffer of 4 i8",
          Refusal.ofArguments(() -> bytes.upload(new float[1])));
      assertEquals(
          "cannot upload 5 bytes: a buffer of 4 i8 has 4",
          Refusal.ofArguments(() -> bytes.upload(MemorySegment.ofArray(new byte[5]))));
      assertEquals(
          "cannot download 17 bytes: a buffer of 4 f32 has 16",
          Refusal.ofArguments(() -> floats.download(MemorySegment.ofArray(new byte[17]))));
    }
  }

  @Test
  void refusesHostMemoryThatIsNotThere() {
    try (DeviceBuffer buffer = gpu.allocate(Element.I8, 16)) {
      MemorySegment segment;
      try (Arena arena = Arena.ofConfined()) {
        segment = arena.allocate(16);
        MemorySegment readOnly = segment.asReadOnly();
        assertTrue(
            Refusal.ofArguments(() -> buffer.download(readOnly)).contains("into read-only memory"));
        String[] message = new String[1];
        Thread other =
            new Thread(() -> message[0] = Refusal.ofArguments(() -> buffer.upload(segment)));
        other.start();
        assertTrue(join(other) && message[0].contains("another thread's"), message[0]);
      }
      assertTrue(Refusal.ofArguments(() -> buffer.upload(segment)).contains("was closed"));
      assertTrue(Refusal.ofArguments(() -> buffer.download(segment)).contains("was closed"));
    }
  }

  private static boolean join(Thread thread) {
    try {
      thread.join(10_000);
    } catch (InterruptedException e) {
      return false;
    }
    return !thread.isAlive();
  }

  @Test
  void refusesUseAfterItWasFreed() {
    DeviceBuffer buffer = gpu.allocate(Element.F32, 4);
    buffer.close();
    buffer.close();
    for (Runnable use :
        new Runnable[] {
          () -> buffer.upload(new float[4]),
          () -> buffer.download(new float[4]),
          () -> buffer.upload(MemorySegment.ofArray(new float[4])),
          () -> buffer.download(MemorySegment.ofArray(new float[4])),
          () -> buffer.fill((byte) 0),
          () -> buffer.slice(0, 1),
          buffer::address
        }) {
      assertEquals("a buffer of 4 f32 is used after it was freed", Refusal.ofArguments(use));
    }
  }
}
