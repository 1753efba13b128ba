package dev.loupe.cuda.driver;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.tukaani.xz.XZInputStream;

/**
 * Compiled kernels as they lie among the resources: one .xz file for each image, and an index that
 * {@code build/compile-cuda} writes. The index has these lines:
 *
 * <pre>
 * made COMPILER, ASSEMBLER
 * source NAME SHA256              of what its images depend on
 * image NAME CUDA BYTES SHA256    the toolkit's version; unpacked size; of the packed file
 * </pre>
 *
 * <p>A file is unpacked only if it is the one that the index names, and never to more than the size
 * that stands there.
 */
public final class ImageArchive {
  /** Opens a file of the archive; null if it isn't there. */
  @FunctionalInterface
  public interface Files {
    @Nullable InputStream open(String name) throws IOException;
  }

  /**
   * One image.
   *
   * @param name e.g. {@code linear.sm_86.cubin}
   * @param toolkit version of CUDA that made it, e.g. 12.6
   * @param bytes its size, unpacked
   * @param sha256 of the packed file
   */
  public record Member(String name, String toolkit, int bytes, String sha256) {
    public Member {
      if (bytes <= 0 || bytes > MAX_BYTES) {
        throw new IllegalArgumentException(
            "%s of %d bytes, which should be 1 to %d".formatted(name, bytes, MAX_BYTES));
      }
    }
  }

  private static final int MAX_INDEX_BYTES = 1 << 20;

  /** Of an image, packed or not; the largest of today has 3.5 MB. */
  private static final int MAX_BYTES = 64 << 20;

  /** What unpacking may allocate; the build packs with a dictionary of 4 MiB. */
  private static final int MAX_DECODER_KIB = 16 << 10;

  private final Files files;
  private final String identity;
  private String made = "";
  private final List<String> sources = new ArrayList<>();
  private final Map<String, Member> members = new LinkedHashMap<>();

  /**
   * @param index name of the index
   * @throws GpuException if there is no index, or one that can't be read
   */
  public ImageArchive(Files files, String index) {
    this.files = files;
    byte[] bytes = read(index, MAX_INDEX_BYTES);
    identity = sha256(bytes);
    try {
      new String(bytes, StandardCharsets.UTF_8).lines().forEach(this::readLine);
    } catch (IllegalArgumentException e) {
      throw corrupt(index, String.valueOf(e.getMessage()), e);
    }
    if (members.isEmpty()) {
      throw corrupt(index, "it names no image", null);
    }
  }

  private void readLine(String line) {
    String[] words = line.split(" ", -1);
    switch (words[0]) {
      case "made" -> made = line.substring("made".length()).strip();
      case "source" -> sources.add(words.length == 3 ? words[1] : refuse(line));
      case "image" -> {
        if (words.length != 5) {
          refuse(line);
        }
        members.put(words[1], new Member(words[1], words[2], Integer.parseInt(words[3]), words[4]));
      }
      case "ptx", "table" -> {} // the build's
      default -> refuse(line);
    }
  }

  private static String refuse(String line) {
    throw new IllegalArgumentException("a line reads \"%.80s\"".formatted(line));
  }

  /** Which images these are: the SHA-256 of the index, which has one of every image. */
  String identity() {
    return identity;
  }

  /** The compilers, for people. */
  String made() {
    return made;
  }

  /** Names of the compiled sources, in order. */
  public List<String> sources() {
    return List.copyOf(sources);
  }

  /** Null if there is no such image. */
  public @Nullable Member find(String name) {
    return members.get(name);
  }

  /**
   * The packed file of an image, as the index has it.
   *
   * @throws GpuException if it is missing or another
   */
  byte[] packed(Member member) {
    String file = member.name() + ".xz";
    byte[] packed = read(file, MAX_BYTES);
    if (!sha256(packed).equals(member.sha256())) {
      throw corrupt(
          file, "its %d bytes are not those that were packed".formatted(packed.length), null);
    }
    return packed;
  }

  /**
   * The image itself.
   *
   * @throws GpuException if its file is missing or corrupt
   */
  public byte[] unpack(Member member) {
    byte[] packed = packed(member);
    String file = member.name() + ".xz";
    try (XZInputStream in = new XZInputStream(new ByteArrayInputStream(packed), MAX_DECODER_KIB)) {
      byte[] bytes = in.readNBytes(member.bytes());
      if (bytes.length != member.bytes() || in.read() >= 0) {
        throw corrupt(file, "it doesn't unpack to %d bytes".formatted(member.bytes()), null);
      }
      return bytes;
    } catch (IOException e) {
      throw corrupt(file, "it can't be unpacked: " + e.getMessage(), e);
    }
  }

  private byte[] read(String name, int limit) {
    try (InputStream in = files.open(name)) {
      if (in == null) {
        throw corrupt(name, "it is missing", null);
      }
      byte[] bytes = in.readNBytes(limit + 1);
      if (bytes.length > limit) {
        throw corrupt(name, "it has more than %d bytes".formatted(limit), null);
      }
      return bytes;
    } catch (IOException e) {
      throw corrupt(name, "it can't be read: " + e.getMessage(), e);
    }
  }

  private static GpuException corrupt(String file, String what, @Nullable Exception cause) {
    String message =
        "the compiled kernels of this copy of Loupe are damaged (%s: %s): build or download it again"
            .formatted(file, what);
    return cause == null ? new GpuException(message) : new GpuException(message, cause);
  }

  private static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }
}
