package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.emulator.ChildJvm;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What the driver is given, and that it would not read past its end. */
class KernelImageTest {
  private static final int SEGMENTS = 64; // one
  private static final int SECTIONS = SEGMENTS + 56; // two
  private static final int BYTES = SECTIONS + 2 * 64 + 40;

  /** As small as a cubin can be: a segment and two sections, one of which has no bytes. */
  private static byte[] elf() {
    ByteBuffer elf = ByteBuffer.allocate(BYTES).order(ByteOrder.LITTLE_ENDIAN);
    elf.put(0, new byte[] {0x7f, 'E', 'L', 'F', 2, 1});
    elf.putLong(32, SEGMENTS).putLong(40, SECTIONS);
    elf.putShort(54, (short) 56).putShort(56, (short) 1);
    elf.putShort(58, (short) 64).putShort(60, (short) 2);
    elf.putLong(SEGMENTS + 8, BYTES - 40).putLong(SEGMENTS + 32, 30);
    elf.putLong(SECTIONS + 24, BYTES - 40).putLong(SECTIONS + 32, 40);
    elf.putInt(SECTIONS + 64 + 4, 8).putLong(SECTIONS + 64 + 32, 1 << 20);
    return elf.array();
  }

  private static String refusal(byte[] image) {
    try (Arena arena = Arena.ofConfined()) {
      return Refusal.of(() -> KernelImage.copy(image, arena));
    }
  }

  @Test
  void wholeImagesPass() {
    try (Arena arena = Arena.ofConfined()) {
      KernelImage.copy(elf(), arena);
      for (String ptx : new String[] {".version 8.0", "// emulated\0", "\n.target sm_75"}) {
        KernelImage.copy(ptx.getBytes(StandardCharsets.US_ASCII), arena);
      }
    }
  }

  @Test
  void aCubinThatEndsEarlyIsNotGivenToTheDriver() {
    byte[] whole = elf();
    for (int bytes = 4; bytes < whole.length; bytes++) {
      assertEquals(
          "the cubin of %d bytes is not whole".formatted(bytes),
          refusal(Arrays.copyOf(whole, bytes)));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "32, 1000", // the segments
    "40, -8", // the sections
    "40, 9223372036854775807",
    "96, 1000000", // bytes of the segment
    "72, -1", // where it begins
    "144, 9223372036854775807", // the first section
    "152, -40"
  })
  void aTableThatLiesElsewhereIsSeen(int at, long value) {
    byte[] elf = elf();
    ByteBuffer.wrap(elf).order(ByteOrder.LITTLE_ENDIAN).putLong(at, value);
    assertEquals("the cubin of %d bytes is not whole".formatted(BYTES), refusal(elf));
  }

  @Test
  void whatIsNeitherCubinNorTextIsSaid() {
    byte[][] images = {{}, {0}, {1, 2, 3}, new byte[100], {'a', 0, 'b'}};
    for (byte[] image : images) {
      assertEquals(
          "the image of %d bytes is neither a cubin nor PTX".formatted(image.length),
          refusal(image));
    }
  }

  /** Loads kernels, which takes as long as it is told to, and collects garbage meanwhile. */
  static final class Collects {
    private Collects() {}

    public static void main(String[] args) throws Exception {
      try (Gpu gpu = Emulator.open()) {
        Emulator.holdLoads(true);
        Thread loads = new Thread(() -> gpu.kernel("pointwise", "pointwise_convert_f32"));
        loads.start();
        while (Emulator.holdLoads(true) == 0 && loads.isAlive()) {
          Thread.sleep(1);
        }
        System.gc();
        System.out.println("collected beside so many: " + Emulator.holdLoads(false));
        loads.join();
      }
    }
  }

  /** A compiler works for seconds; a Java array that it read would keep the collector waiting. */
  @Test
  @OnDevice(emulated = true)
  void garbageIsCollectedWhileTheDriverCompiles(@TempDir Path temporary) throws Exception {
    Map<String, String> ptx =
        Map.of("EMU_COMPUTE_CAPABILITY", "121", "EMU_DRIVER_VERSION", "12080");
    for (Map<String, String> environment : List.of(Map.<String, String>of(), ptx)) {
      assertEquals(
          "collected beside so many: 1\nexit 0\n",
          ChildJvm.run(Collects.class, environment, temporary));
    }
  }
}
