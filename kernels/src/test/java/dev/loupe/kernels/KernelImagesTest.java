package dev.loupe.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class KernelImagesTest {
  @ParameterizedTest
  @CsvSource({
    // driver, compute capability, best first
    "13000,  75, sm_75.cubin compute_75.ptx",
    "13000,  80, sm_80.cubin compute_80.ptx compute_75.ptx",
    "13000,  86, sm_86.cubin compute_80.ptx compute_75.ptx",
    "13010,  89, sm_89.cubin compute_80.ptx compute_75.ptx",
    "13000,  90, sm_90a.cubin sm_90.cubin compute_90a.ptx compute_80.ptx compute_75.ptx",
    "13000, 100, sm_100.cubin compute_80.ptx compute_75.ptx",
    "13000, 103, sm_100.cubin compute_80.ptx compute_75.ptx",
    "13000, 120, sm_120.cubin compute_80.ptx compute_75.ptx",
    "13000, 121, sm_120.cubin compute_80.ptx compute_75.ptx",
    // cards without a cubin of their own: embedded ones, and what is to come
    "13000,  87, compute_80.ptx compute_75.ptx",
    "13000, 110, compute_80.ptx compute_75.ptx",
    "14000, 150, compute_80.ptx compute_75.ptx",
    // drivers older than the compiler
    "12090,  90, compute_90a.ptx compute_80.ptx compute_75.ptx",
    "12080, 120, compute_80.ptx compute_75.ptx",
    "12000,  75, compute_75.ptx",
    "11080,  90, compute_80.ptx compute_75.ptx",
    "11000,  80, compute_80.ptx compute_75.ptx",
    "10020,  75, compute_75.ptx",
    // nothing fits
    "10010,  75, ''",
    "13000,  70, ''",
    "0,      90, ''",
  })
  void choosesCubinsForNewDriversAndTheNewestPtxOtherwise(
      int driver, int computeCapability, String expected) {
    assertEquals(
        expected,
        String.join(
            " ",
            KernelImages.fitting(driver, computeCapability).stream()
                .map(KernelImages.Kind::ending)
                .toList()));
  }

  @Test
  void saysWhetherTheCardOrTheDriverIsTooOld() {
    assertEquals(
        "the card has compute capability 7.0, the kernels need 7.5 (Turing) or newer",
        message("any", 13000, 70));
    assertEquals(
        "the driver supports CUDA 10.1, which has nothing for a card of compute capability 7.5:"
            + " update the driver",
        message("any", 10010, 75));
  }

  @Test
  void saysWhatTheBuildHasWhereASourceIsUnknown() {
    String message = message("no_such_source", 13000, 80);
    assertTrue(
        KernelImages.sources().isEmpty()
            ? message.contains("without nvcc")
            : message.contains("no_such_source") && message.contains("8.0"),
        message);
  }

  @Test
  void everySourceHasEveryImage() {
    for (String source : sources()) {
      for (KernelImages.Kind kind : KernelImages.KINDS) {
        KernelImages.Image image = KernelImages.load(source, kind.oldestDriver(), kind.from());
        if (!kind.ending().startsWith("sm_90.")) { // where there is 9.0 there is 9.0a
          assertEquals(source + "." + kind.ending(), image.name());
        }
        check(image, kind);
      }
    }
  }

  private static void check(KernelImages.Image image, KernelImages.Kind kind) {
    ByteBuffer bytes = ByteBuffer.wrap(image.bytes()).order(ByteOrder.LITTLE_ENDIAN);
    if (!image.ptx()) {
      assertEquals(0x464C457F, bytes.getInt(0), image.name() + " is an ELF file");
      assertEquals(190, bytes.getShort(18), image.name() + " is for EM_CUDA");
      return;
    }
    String ptx = new String(image.bytes(), StandardCharsets.US_ASCII);
    assertTrue(ptx.endsWith("\n\0"), image.name() + " ends with a zero byte");
    String version = kind.from() == 75 ? "6.5" : kind.from() == 80 ? "7.0" : "8.0";
    assertTrue(ptx.contains("\n.version " + version + "\n"), image.name());
    String target = kind.ending().replace("compute_", "sm_").replace(".ptx", "");
    assertTrue(ptx.contains("\n.target " + target + "\n"), image.name());
  }

  @Test
  void namesNoFolderOfTheMachineThatBuilt() {
    String folder = System.getProperty("user.dir");
    for (String source : sources()) {
      for (KernelImages.Kind kind : KernelImages.KINDS) {
        KernelImages.Image image = KernelImages.load(source, kind.oldestDriver(), kind.from());
        String text = new String(image.bytes(), StandardCharsets.ISO_8859_1);
        assertEquals(-1, text.indexOf(folder), image.name());
      }
    }
  }

  /** The compiled sources; skips the test in a build without nvcc. */
  static List<String> sources() {
    assumeFalse(
        KernelImages.sources().isEmpty(), "built without nvcc: there are no images to look at");
    return KernelImages.sources();
  }

  private static String message(String source, int driver, int computeCapability) {
    return String.valueOf(
        assertThrows(GpuException.class, () -> KernelImages.load(source, driver, computeCapability))
            .getMessage());
  }
}
