package dev.loupe.cuda.driver;

import java.net.URL;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The compiled kernels in the jar: for each source {@code NAME.cu} a cubin for every target, {@code
 * NAME.sm_80.cubin}, and PTX, {@code NAME.compute_80.ptx}, for cards and drivers that no cubin
 * fits; a driver compiles it when it loads it, which takes seconds.
 *
 * <p>A cubin runs on its own compute capability and later minor ones of the same kind of card, PTX
 * on every later one (CUDA Programming Guide, "Compute capabilities"), and drivers load cubins of
 * their own major version of CUDA and of older ones (CUDA Compatibility, "Minor version
 * compatibility"). The PTX says that it is of version 7.0, so that drivers from CUDA 11.0 on take
 * it (PTX ISA, "Release history").
 */
public final class KernelImages {
  /**
   * One kind of image.
   *
   * @param ending ending of the image's name, after the source's
   * @param oldestDriver CUDA version that the driver has to support, e.g. 13000
   * @param from the least compute capability times ten that it runs on
   * @param to the greatest
   */
  record Kind(String ending, int oldestDriver, int from, int to) {
    boolean fits(int driverVersion, int computeCapability) {
      return driverVersion >= oldestDriver && computeCapability >= from && computeCapability <= to;
    }

    /** Whether the driver has to compile it. */
    boolean ptx() {
      return ending.endsWith(".ptx");
    }

    /** The target alone, e.g. {@code sm_86}. */
    String target() {
      return ending.substring(0, ending.indexOf('.'));
    }
  }

  /** Best first. */
  static final List<Kind> KINDS =
      List.of(
          new Kind("sm_75.cubin", 12000, 75, 75),
          new Kind("sm_80.cubin", 12000, 80, 80),
          new Kind("sm_86.cubin", 12000, 86, 86),
          new Kind("sm_89.cubin", 12000, 89, 89),
          new Kind("sm_90a-13.cubin", 13000, 90, 90),
          new Kind("sm_90a.cubin", 12000, 90, 90),
          new Kind("sm_100.cubin", 13000, 100, 103),
          new Kind("sm_120.cubin", 13000, 120, 121),
          new Kind("compute_80.ptx", 11000, 80, Integer.MAX_VALUE));

  private static final String INDEX = "index";

  private static final String FOLDER = "/dev/loupe/cuda/images/";

  private static @Nullable ImageArchive built;

  private KernelImages() {}

  /** What the build put into the jar. */
  public static synchronized ImageArchive built() {
    if (built == null) {
      built =
          new ImageArchive(name -> KernelImages.class.getResourceAsStream(FOLDER + name), INDEX);
    }
    return built;
  }

  /** A hash that names all images of the jar: others have another. */
  public static String identity() {
    return built().identity();
  }

  /**
   * The kind of image that a card loads.
   *
   * @param driverVersion CUDA version that the driver supports, e.g. 12040
   * @param computeCapability of the card, times ten
   * @throws GpuException if there is none, saying whether the card or the driver is too old
   */
  static Kind kind(int driverVersion, int computeCapability) {
    return KINDS.stream()
        .filter(kind -> kind.fits(driverVersion, computeCapability))
        .findFirst()
        .orElseThrow(
            () ->
                new GpuException(
                    computeCapability < 75
                        ? "the card has compute capability %s, the kernels need 7.5 (Turing) or newer"
                            .formatted(decimal(computeCapability))
                        : "the driver supports CUDA %s, which has nothing for a card of compute capability %s: update the driver"
                            .formatted(
                                CudaDriver.dotted(driverVersion), decimal(computeCapability))));
  }

  /**
   * The image of a source to load for a card.
   *
   * @param archive where it lies
   * @param source name of the source without its ending, e.g. {@code attention}
   * @throws GpuException if there is none, saying whether the card, the driver or the archive is to
   *     blame
   */
  public static byte[] load(
      ImageArchive archive, String source, int driverVersion, int computeCapability) {
    return archive.unpack(member(archive, source, kind(driverVersion, computeCapability)));
  }

  private static ImageArchive.Member member(ImageArchive archive, String source, Kind kind) {
    ImageArchive.Member member = archive.find(source + "." + kind.ending());
    if (member == null) {
      throw new GpuException(
          "there are no kernels called %s for %s, there are %s"
              .formatted(source, kind.target(), String.join(", ", archive.sources())));
    }
    return member;
  }

  /**
   * What a card loads, for people, e.g. {@code sm_86 cubins of CUDA 12.6, from
   * loupe-kernels-1.0.jar}. Looks whether all of it is there and whole.
   *
   * @throws GpuException if it isn't, or if nothing fits
   */
  public static String describe(int driverVersion, int computeCapability) {
    Kind kind = kind(driverVersion, computeCapability);
    String toolkit = "";
    for (String source : built().sources()) {
      ImageArchive.Member member = member(built(), source, kind);
      built().packed(member);
      toolkit = member.toolkit();
    }
    return kind.ptx()
        ? "%s PTX, which the driver compiles when it is needed, from %s"
            .formatted(kind.target(), place())
        : "%s cubins of CUDA %s, from %s".formatted(kind.target(), toolkit, place());
  }

  private static String place() {
    URL index = KernelImages.class.getResource(FOLDER + INDEX);
    String path = String.valueOf(index);
    int jar = path.indexOf(".jar!");
    return jar < 0
        ? "a folder of classes"
        : path.substring(path.lastIndexOf('/', jar) + 1, jar + ".jar".length());
  }

  private static String decimal(int computeCapability) {
    return computeCapability / 10 + "." + computeCapability % 10;
  }
}
