package dev.loupe.cuda.driver;

/** What the driver and a card must be and have before a GPU is opened. */
public final class DriverRequirements {
  /** The oldest driver with every function that JCuda 12 calls by the name of CUDA 12. */
  private static final int MIN_DRIVER = 12_000;

  /** The name by which people know it. */
  private static final String MIN_DRIVER_NAME = "525";

  private static final int MIN_COMPUTE_CAPABILITY = 75;

  private DriverRequirements() {}

  /**
   * Passes where GPU {@code device} can be asked for.
   *
   * @param device number in the driver's order, from 0
   * @throws GpuException if there is no driver, it is too old, or there is no such device
   */
  public static void check(CudaDriver driver, int device) {
    if (driver.version() == 0) {
      throw new GpuException(
          "no GPU can be used: the NVIDIA driver is %s; install it, or run on the CPU"
              .formatted(driver.problem()));
    }
    if (driver.version() < MIN_DRIVER) {
      throw new GpuException(
          "no GPU can be used: the NVIDIA driver is too old, it supports CUDA %s and %s is needed;"
                  .formatted(CudaDriver.dotted(driver.version()), CudaDriver.dotted(MIN_DRIVER))
              + " update it to %s or newer, or run on the CPU".formatted(MIN_DRIVER_NAME));
    }
    int count = driver.cards().size();
    if (count == 0) {
      throw new GpuException(
          "no GPU can be used: the driver is there (%s); see nvidia-smi, or run on the CPU"
              .formatted(driver.summary()));
    }
    if (device < 0 || device >= count) {
      throw new GpuException(
          "there is no GPU %d: this machine has %d, numbered from 0 (%s)"
              .formatted(device, count, String.join(", ", driver.cards())));
    }
  }

  /**
   * Passes where the driver has every function that is called.
   *
   * @throws GpuException if it lacks one
   */
  public static void checkFunctions() {
    CudaDriver.library()
        .flatMap(DriverFunctions::missing)
        .ifPresent(
            function -> {
              throw new GpuException(
                  "no GPU can be used: the NVIDIA driver lacks %s; update it to %s or newer, or run on the CPU"
                      .formatted(function, MIN_DRIVER_NAME));
            });
  }

  /**
   * Passes a card that kernels exist for.
   *
   * @param computeCapability times ten
   * @throws GpuException if it is older
   */
  public static void checkCapability(int device, String name, int computeCapability) {
    if (computeCapability < MIN_COMPUTE_CAPABILITY) {
      throw new GpuException(
          "GPU %d (%s) has compute capability %d.%d, and the kernels need %d.%d or newer"
              .formatted(
                  device,
                  name,
                  computeCapability / 10,
                  computeCapability % 10,
                  MIN_COMPUTE_CAPABILITY / 10,
                  MIN_COMPUTE_CAPABILITY % 10));
    }
  }
}
