package dev.loupe.cuda;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.DriverRequirements;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.KernelImages;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;

/**
 * A card with all that decides which kernels compute rightly on it. Asked of the driver without a
 * context, so that a card that serves one process at a time is left to the one that tests it.
 *
 * @param name product name
 * @param uuid the driver's name for this very card, in hex; empty if the driver gives none
 * @param computeCapability times ten
 * @param cuda CUDA version that the driver supports, e.g. 13000
 * @param driver the driver's own version, e.g. 580.95.05; empty where it can't be had
 * @param images hash of the compiled kernels of this build
 * @param cublas version of cuBLAS, e.g. 12.6.4; empty if it is not installed, {@code ?} if it does
 *     not tell
 */
public record Card(
    String name,
    String uuid,
    int computeCapability,
    int cuda,
    String driver,
    String images,
    String cublas) {
  private static final int UUID_BYTES = 16;
  private static final int CAPABILITY_MAJOR = 75; // cuda.h, CUdevice_attribute
  private static final int CAPABILITY_MINOR = 76;
  private static final int TEXT_BYTES = 128;

  /**
   * Asks the driver.
   *
   * @param device number in the driver's order, from 0
   * @throws GpuException if there is no such card, or the driver or the card is too old
   */
  public static Card find(int device) {
    CudaDriver driver = CudaDriver.find();
    DriverRequirements.check(driver, device);
    SymbolLookup library = CudaDriver.library().orElseThrow();
    int[] capability = new int[1];
    String uuid;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment number = arena.allocate(ValueLayout.JAVA_INT);
      for (int attribute : new int[] {CAPABILITY_MAJOR, CAPABILITY_MINOR}) {
        int rc = CudaDriver.call(library, "cuDeviceGetAttribute", number, attribute, device);
        if (rc != 0) {
          throw new GpuException(
              "asking GPU %d for its compute capability failed with error %d"
                  .formatted(device, rc));
        }
        capability[0] = capability[0] * 10 + number.get(ValueLayout.JAVA_INT, 0);
      }
      MemorySegment bytes = arena.allocate(UUID_BYTES);
      boolean told =
          CudaDriver.call(library, "cuDeviceGetUuid_v2", bytes, device) == 0 // of a MIG slice, too
              || CudaDriver.call(library, "cuDeviceGetUuid", bytes, device) == 0;
      uuid = told ? HexFormat.of().formatHex(bytes.toArray(ValueLayout.JAVA_BYTE)) : "";
    }
    String name = driver.cards().get(device);
    DriverRequirements.checkCapability(device, name, capability[0]);
    return new Card(
        name,
        uuid,
        capability[0],
        driver.version(),
        driverVersion(),
        KernelImages.identity(),
        cublasVersion());
  }

  /** From the kernel module where it tells (Linux), else from NVML, which comes with the driver. */
  private static String driverVersion() {
    try {
      return Files.readString(Path.of("/sys/module/nvidia/version")).strip();
    } catch (IOException e) {
      return nvmlVersion();
    }
  }

  private static String nvmlVersion() {
    boolean windows = System.getProperty("os.name", "").startsWith("Windows");
    Optional<SymbolLookup> found = CudaDriver.library(windows ? "nvml.dll" : "libnvidia-ml.so.1");
    if (found.isEmpty() || CudaDriver.call(found.get(), "nvmlInit_v2") != 0) {
      return "";
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment text = arena.allocate(TEXT_BYTES);
      int rc = CudaDriver.call(found.get(), "nvmlSystemGetDriverVersion", text, TEXT_BYTES - 1);
      return rc == 0 ? text.getString(0) : "";
    } finally {
      CudaDriver.call(found.get(), "nvmlShutdown");
    }
  }

  /** By cublasGetProperty, which needs no context: major, minor and patch level. */
  private static String cublasVersion() {
    Optional<SymbolLookup> found = Cublas.library(12).or(() -> Cublas.library(13));
    if (found.isEmpty()) {
      return "";
    }
    StringBuilder version = new StringBuilder();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment number = arena.allocate(ValueLayout.JAVA_INT);
      for (int property = 0; property < 3; property++) {
        if (CudaDriver.call(found.get(), "cublasGetProperty", property, number) != 0) {
          return "?";
        }
        version.append(property == 0 ? "" : ".").append(number.get(ValueLayout.JAVA_INT, 0));
      }
    }
    return version.toString();
  }

  /** True if the driver is the emulator of this project's tests, whose times mean nothing. */
  public boolean isEmulated() {
    return CudaDriver.library().flatMap(library -> library.find("emu_options")).isPresent();
  }

  /** Short name of all this, for files. */
  public String key() {
    return hash(
        List.of(
            name, uuid, "" + computeCapability, "" + cuda, driver, images, cublas, "verdicts 1"));
  }

  /** The first 64 bits of a SHA-256 over words, in hex. */
  public static String hash(List<String> words) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      for (String word : words) {
        digest.update(word.getBytes(StandardCharsets.UTF_8));
        digest.update((byte) 0);
      }
      return HexFormat.of().formatHex(digest.digest(), 0, 8);
    } catch (NoSuchAlgorithmException e) { // every Java has it
      throw new IllegalStateException(e);
    }
  }
}
