package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.emulator.Refusal;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** The images that are packed among the resources; nothing here needs a compiler. */
class KernelImagesTest {
  @ParameterizedTest
  @CsvSource({
    // driver, compute capability
    "12000,  75, sm_75.cubin",
    "12000,  80, sm_80.cubin",
    "12020,  86, sm_86.cubin",
    "12090,  89, sm_89.cubin",
    "12000,  90, sm_90a.cubin",
    "13000,  75, sm_75.cubin",
    "13010,  90, sm_90a-13.cubin",
    "13000, 100, sm_100.cubin",
    "13000, 103, sm_100.cubin",
    "13000, 120, sm_120.cubin",
    "13000, 121, sm_120.cubin",
    // cards without a cubin of their own: embedded ones, and what is to come
    "13000,  87, compute_80.ptx",
    "13000, 110, compute_80.ptx",
    "14000, 150, compute_80.ptx",
    // drivers older than the compiler
    "12080, 100, compute_80.ptx",
    "12090, 121, compute_80.ptx",
    "11080,  90, compute_80.ptx",
    "11000,  80, compute_80.ptx",
  })
  void choosesCubinsWhereThereAreAndPtxOtherwise(
      int driver, int computeCapability, String expected) {
    assertEquals(expected, KernelImages.kind(driver, computeCapability).ending());
  }

  @Test
  void saysWhetherTheCardOrTheDriverIsTooOld() {
    assertEquals(
        "the card has compute capability 7.0, the kernels need 7.5 (Turing) or newer",
        Refusal.of(() -> KernelImages.kind(13000, 70)));
    assertEquals(
        "the driver supports CUDA 11.8, which has nothing for a card of compute capability 7.5:"
            + " update the driver",
        Refusal.of(() -> KernelImages.kind(11080, 75)));
    assertEquals(
        "the driver supports CUDA 10.2, which has nothing for a card of compute capability 8.0:"
            + " update the driver",
        Refusal.of(() -> KernelImages.kind(10020, 80)));
  }

  @Test
  void saysWhatThereIsWhereASourceIsUnknown() {
    String message =
        Refusal.of(() -> KernelImages.load(KernelImages.built(), "no_such_source", 13000, 80));
    assertTrue(
        message.startsWith("there are no kernels called no_such_source for sm_80, there are "),
        message);
    assertTrue(message.contains("attention, attention_decode"), message);
  }

  @Test
  void everySourceIsThere() throws IOException {
    try (Stream<Path> files = Files.list(Path.of("src/main/cuda"))) {
      assertEquals(
          files
              .map(file -> file.getFileName().toString())
              .filter(name -> name.endsWith(".cu"))
              .map(name -> name.substring(0, name.length() - ".cu".length()))
              .sorted()
              .toList(),
          KernelImages.built().sources());
    }
  }

  static List<KernelImages.Kind> kinds() {
    return KernelImages.KINDS;
  }

  @ParameterizedTest
  @MethodSource("kinds")
  void everySourceHasEveryImage(KernelImages.Kind kind) {
    String folder = System.getProperty("user.dir");
    for (String source : KernelImages.built().sources()) {
      byte[] image = load(source, kind);
      check(image, kind, source);
      String text = new String(image, StandardCharsets.ISO_8859_1);
      assertEquals(-1, text.indexOf(folder), source + " names a folder of the machine that built");
    }
  }

  static byte[] load(String source, KernelImages.Kind kind) {
    ImageArchive archive = KernelImages.built();
    ImageArchive.Member member = archive.find(source + "." + kind.ending());
    assertNotNull(member, source + "." + kind.ending());
    return archive.unpack(member);
  }

  private static void check(byte[] image, KernelImages.Kind kind, String source) {
    if (kind.ptx()) {
      String ptx = new String(image, StandardCharsets.US_ASCII);
      assertTrue(ptx.contains("\n.version 7.0\n.target sm_80\n"), source);
      return;
    }
    ByteBuffer bytes = ByteBuffer.wrap(image).order(ByteOrder.LITTLE_ENDIAN);
    assertEquals(0x464C457F, bytes.getInt(0), source + " is an ELF file");
    assertEquals(190, bytes.getShort(18), source + " is for EM_CUDA");
    // CUDA 13 writes ABI version 8, which needs its drivers; 12 writes 7, which all of 12 and 13
    // load
    boolean old = kind.oldestDriver() == 12000;
    assertEquals(old ? 7 : 8, bytes.get(8), source + "'s ABI version");
    int flags = bytes.getInt(48);
    int target = (old ? flags : flags >> 8) & 0xff;
    boolean oneCard = old && (flags & 0x800) != 0;
    if (old) {
      assertEquals(kind.target(), "sm_" + target + (oneCard ? "a" : ""), source);
    } else {
      assertTrue(kind.target().startsWith("sm_" + target), source);
    }
    if (old) { // what the PTX was for: only that of 9.0 has waits for the kernel before
      assertEquals(target < 80 ? 75 : target < 90 ? 80 : 90, flags >> 16 & 0xff, source);
    }
  }

  @Test
  void saysWhereTheKernelsComeFrom() {
    assertEquals(
        "sm_86 cubins of CUDA 12.6, from a folder of classes", KernelImages.describe(12020, 86));
    assertEquals(
        "sm_120 cubins of CUDA 13.0, from a folder of classes", KernelImages.describe(13000, 120));
    assertEquals(
        "compute_80 PTX, which the driver compiles when it is needed, from a folder of classes",
        KernelImages.describe(12080, 120));
    assertEquals(KernelImages.built().identity(), KernelImages.identity());
  }
}
