package dev.loupe.kernels;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The compiled kernels that the build put into the jar: for each source {@code NAME.cu} a cubin for
 * every target, {@code NAME.sm_80.cubin}, and PTX, {@code NAME.compute_80.ptx}, for cards and
 * drivers that no cubin fits; a driver compiles it when it loads it, which takes seconds.
 *
 * <p>A cubin runs on its own compute capability and later minor ones of the same kind of card, PTX
 * on every later one, save for architecture-specific code ({@code 90a}), which runs on that one
 * alone (CUDA Programming Guide, "Compute capabilities"). Cubins of CUDA 13 need a driver for CUDA
 * 13. The PTX says that it is of an older version than its compiler, so that older drivers take it:
 * 6.5, 7.0 and 8.0 came with CUDA 10.2, 11.0 and 12.0 (PTX ISA, "Release history").
 */
final class KernelImages {
  /**
   * One kind of image.
   *
   * @param ending ending of the resource's name, after the source's
   * @param oldestDriver CUDA version that the driver has to support, e.g. 13000
   * @param from the least compute capability times ten that it runs on
   * @param to the greatest
   */
  record Kind(String ending, int oldestDriver, int from, int to) {
    boolean fits(int driverVersion, int computeCapability) {
      return driverVersion >= oldestDriver && computeCapability >= from && computeCapability <= to;
    }
  }

  /** Contents of one image. */
  static final class Image {
    private final String name;
    private final byte[] bytes;

    private Image(String name, byte[] bytes) {
      this.name = name;
      this.bytes = bytes;
    }

    /** Name of the resource. */
    String name() {
      return name;
    }

    /** As {@code cuModuleLoadData} wants it: PTX ends with a zero byte. Not a copy. */
    byte[] bytes() {
      return bytes;
    }

    /** Whether the driver has to compile it. */
    boolean ptx() {
      return name.endsWith(".ptx");
    }

    @Override
    public String toString() {
      return name;
    }
  }

  /** Best first. */
  static final List<Kind> KINDS =
      List.of(
          new Kind("sm_75.cubin", 13000, 75, 75),
          new Kind("sm_80.cubin", 13000, 80, 80),
          new Kind("sm_86.cubin", 13000, 86, 86),
          new Kind("sm_89.cubin", 13000, 89, 89),
          new Kind("sm_90a.cubin", 13000, 90, 90),
          new Kind("sm_90.cubin", 13000, 90, 90),
          new Kind("sm_100.cubin", 13000, 100, 103),
          new Kind("sm_120.cubin", 13000, 120, 121),
          new Kind("compute_90a.ptx", 12000, 90, 90),
          new Kind("compute_80.ptx", 11000, 80, Integer.MAX_VALUE),
          new Kind("compute_75.ptx", 10020, 75, Integer.MAX_VALUE));

  private KernelImages() {}

  /**
   * The kinds of image that run on a card, best first; empty if none does.
   *
   * @param driverVersion CUDA version that the driver supports, e.g. 12040
   * @param computeCapability of the card, times ten
   */
  static List<Kind> fitting(int driverVersion, int computeCapability) {
    return KINDS.stream().filter(kind -> kind.fits(driverVersion, computeCapability)).toList();
  }

  /**
   * The image of a source to load for a card.
   *
   * @param source name of the source without its ending, e.g. {@code attention}
   * @throws GpuException if there is none, saying whether the card, the driver or the build is to
   *     blame
   */
  static Image load(String source, int driverVersion, int computeCapability) {
    List<Kind> fitting = fitting(driverVersion, computeCapability);
    if (fitting.isEmpty()) {
      throw new GpuException(
          computeCapability < 75
              ? "the card has compute capability %s, the kernels need 7.5 (Turing) or newer"
                  .formatted(decimal(computeCapability))
              : "the driver supports CUDA %s, which has nothing for a card of compute capability %s: update the driver"
                  .formatted(version(driverVersion), decimal(computeCapability)));
    }
    for (Kind kind : fitting) {
      String name = source + "." + kind.ending();
      byte[] bytes = read(name);
      if (bytes != null) {
        return new Image(
            name, name.endsWith(".ptx") ? Arrays.copyOf(bytes, bytes.length + 1) : bytes);
      }
    }
    throw new GpuException(
        sources().isEmpty()
            ? "this build has no CUDA kernels: it was made without nvcc (install the CUDA toolkit and g++, then build again)"
            : "there are no kernels called %s for compute capability %s and a driver for CUDA %s; this build has %s"
                .formatted(source, decimal(computeCapability), version(driverVersion), sources()));
  }

  /** Names of the compiled sources, in order; empty in a build made without nvcc. */
  static List<String> sources() {
    return index().stream().skip(1).toList();
  }

  /** One line for people: what the build has. */
  static String summary() {
    List<String> index = index();
    return index.isEmpty()
        ? "none (built without nvcc)"
        : "%s: %s".formatted(index.getFirst(), String.join(", ", sources()));
  }

  /** Hash of what the build has; another one may compute otherwise. */
  static String identity() {
    return Card.hash(List.of(summary()));
  }

  /** Lines of the build's list: the compiler, then the sources. */
  private static List<String> index() {
    byte[] bytes = read("index");
    return bytes == null ? List.of() : new String(bytes, StandardCharsets.UTF_8).lines().toList();
  }

  private static byte @Nullable [] read(String name) {
    try (InputStream in = KernelImages.class.getResourceAsStream("cuda/" + name)) {
      return in == null ? null : in.readAllBytes();
    } catch (IOException e) {
      throw new GpuException("the kernels' image " + name + " cannot be read from the jar", e);
    }
  }

  private static String decimal(int computeCapability) {
    return computeCapability / 10 + "." + computeCapability % 10;
  }

  private static String version(int driverVersion) {
    return driverVersion / 1000 + "." + driverVersion % 1000 / 10;
  }
}
