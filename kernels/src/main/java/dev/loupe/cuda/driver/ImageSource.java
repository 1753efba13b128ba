package dev.loupe.cuda.driver;

/** Where compiled kernels come from. */
@FunctionalInterface
public interface ImageSource {
  /** What the build put into the jar. */
  ImageSource BUILT =
      (file, computeCapability, driverVersion) ->
          KernelImages.load(KernelImages.built(), file, driverVersion, computeCapability);

  /**
   * A cubin or PTX text.
   *
   * @param file name of the CUDA source without its ending
   * @param computeCapability of the card, times ten
   * @param driverVersion CUDA version that the driver supports, e.g. 13000
   * @throws GpuException if there is none for that card and driver
   */
  byte[] image(String file, int computeCapability, int driverVersion);
}
