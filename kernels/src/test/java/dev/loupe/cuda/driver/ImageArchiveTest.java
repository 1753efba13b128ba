package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import dev.loupe.cuda.emulator.Refusal;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.tukaani.xz.LZMA2Options;
import org.tukaani.xz.XZOutputStream;

/** An archive of one image, whole and damaged in each way. */
class ImageArchiveTest {
  private static final String IMAGE = "gemv.sm_86.cubin";
  private static final byte[] CUBIN = new byte[3000];

  static {
    new Random(5).nextBytes(CUBIN);
  }

  private final Map<String, byte[]> files = new HashMap<>();

  ImageArchiveTest() throws Exception {
    pack(CUBIN, CUBIN.length, 1 << 16);
  }

  private void pack(byte[] content, int bytes, int dictionary) throws Exception {
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    LZMA2Options options = new LZMA2Options(0); // the packer takes several times the dictionary
    options.setDictSize(dictionary);
    try (XZOutputStream out = new XZOutputStream(packed, options)) {
      out.write(content);
    }
    files.put(IMAGE + ".xz", packed.toByteArray());
    String sum =
        HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(packed.toByteArray()));
    index(
        "made nvcc 1, nvJitLink 2\nsource gemv abc\nimage %s 12.6 %d %s\n"
            .formatted(IMAGE, bytes, sum));
  }

  private byte[] packed() {
    return Objects.requireNonNull(files.get(IMAGE + ".xz"));
  }

  private void index(String text) {
    files.put("index", text.getBytes(StandardCharsets.UTF_8));
  }

  private ImageArchive open() {
    return new ImageArchive(
        name -> {
          byte[] bytes = files.get(name);
          return bytes == null ? null : new ByteArrayInputStream(bytes);
        },
        "index");
  }

  private byte[] unpack() {
    ImageArchive archive = open();
    return archive.unpack(Objects.requireNonNull(archive.find(IMAGE)));
  }

  /** One sentence that names the file and what to do. */
  private void refuses(String file, String what) {
    String message = Refusal.of(this::unpack);
    assertEquals(
        "the compiled kernels of this copy of Loupe are damaged (%s: %s): build or download it again"
            .formatted(file, what),
        message);
  }

  @Test
  void unpacksWhatWasPacked() {
    assertArrayEquals(CUBIN, unpack());
    ImageArchive archive = open();
    assertEquals(List.of("gemv"), archive.sources());
    assertEquals("nvcc 1, nvJitLink 2", archive.made());
    assertEquals("12.6", Objects.requireNonNull(archive.find(IMAGE)).toolkit());
    assertNull(archive.find("gemv.sm_80.cubin"));
  }

  @Test
  void theIdentityIsThatOfEveryImage() throws Exception {
    String before = open().identity();
    assertEquals(before, open().identity());
    assertTrue(before.matches("[0-9a-f]{64}"), before);
    byte[] other = CUBIN.clone();
    other[7] ^= 1;
    pack(other, other.length, 1 << 16);
    assertNotEquals(before, open().identity());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 7, 500, -1})
  void aFlippedByte(int at) {
    byte[] packed = packed();
    packed[at < 0 ? packed.length - 1 : at] ^= 0x10;
    refuses(IMAGE + ".xz", "its %d bytes are not those that were packed".formatted(packed.length));
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 1000})
  void aFileThatWasCut(int length) {
    files.put(IMAGE + ".xz", Arrays.copyOf(packed(), length));
    refuses(IMAGE + ".xz", "its %d bytes are not those that were packed".formatted(length));
  }

  @Test
  void missingFiles() {
    files.remove(IMAGE + ".xz");
    refuses(IMAGE + ".xz", "it is missing");
    files.remove("index");
    refuses("index", "it is missing");
  }

  /**
   * Whoever writes a right hash under a wrong file is no accident: nothing is unpacked unbounded.
   */
  @Test
  void sizesThatAreWrong() throws Exception {
    pack(CUBIN, 100, 1 << 16);
    refuses(IMAGE + ".xz", "it doesn't unpack to 100 bytes");
    pack(CUBIN, CUBIN.length + 1, 1 << 16);
    refuses(IMAGE + ".xz", "it doesn't unpack to %d bytes".formatted(CUBIN.length + 1));
    pack(new byte[50_000_000], 100, 1 << 16);
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long before = threads.getCurrentThreadAllocatedBytes();
    refuses(IMAGE + ".xz", "it doesn't unpack to 100 bytes");
    assertTrue(threads.getCurrentThreadAllocatedBytes() - before < 10_000_000, "nor is it tried");
  }

  @Test
  void aDictionaryThatWouldTakeTheMemory() throws Exception {
    pack(CUBIN, CUBIN.length, 24 << 20);
    String message = Refusal.of(this::unpack);
    assertTrue(message.contains(IMAGE + ".xz: it can't be unpacked: "), message);
  }

  @Test
  void whatIsNoXzFile() throws Exception {
    byte[] other = "not packed".getBytes(StandardCharsets.UTF_8);
    files.put(IMAGE + ".xz", other);
    String sum = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(other));
    index("image %s 12.6 10 %s\n".formatted(IMAGE, sum));
    String message = Refusal.of(this::unpack);
    assertTrue(message.contains(IMAGE + ".xz: it can't be unpacked: "), message);
  }

  @Test
  void anIndexThatIsNone() {
    index("");
    refuses("index", "it names no image");
    index("made by hand\n");
    refuses("index", "it names no image");
    index("imagf %s 12.6 3000 abc\n".formatted(IMAGE));
    refuses("index", "a line reads \"imagf gemv.sm_86.cubin 12.6 3000 abc\"");
    index("image %s 12.6 abc\n".formatted(IMAGE));
    refuses("index", "a line reads \"image gemv.sm_86.cubin 12.6 abc\"");
    index("image %s 12.6 many abc\n".formatted(IMAGE));
    refuses("index", "For input string: \"many\"");
    index("source gemv\n");
    refuses("index", "a line reads \"source gemv\"");
    for (String size : new String[] {"0", "-5", "67108865", "2147483647"}) {
      index("image %s 12.6 %s abc\n".formatted(IMAGE, size));
      refuses("index", "%s of %s bytes, which should be 1 to 67108864".formatted(IMAGE, size));
    }
    index("x".repeat((1 << 20) + 1));
    refuses("index", "it has more than 1048576 bytes");
  }

  @Test
  void aFileThatCannotBeRead() {
    ImageArchive.Files broken =
        name -> {
          throw new IOException("the disk is gone");
        };
    assertEquals(
        "the compiled kernels of this copy of Loupe are damaged (index: it can't be read: the disk"
            + " is gone): build or download it again",
        Refusal.of(() -> new ImageArchive(broken, "index")));
  }
}
