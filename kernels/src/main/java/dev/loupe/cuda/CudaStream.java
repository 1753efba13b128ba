package dev.loupe.cuda;

import jcuda.driver.JCudaDriver;

/**
 * A stream beside the GPU's own one: what is put on it runs at its own pace, in its own order. What
 * has to come after something on another stream waits for a {@link CudaEvent} ({@link
 * CudaEvent#hold}). In a recording it takes part once it holds for a mark set in it, and has to be
 * waited for at the end.
 */
public final class CudaStream extends DriverObject {
  private final CudaContext.Stream stream = new CudaContext.Stream();

  /** On the GPU's thread. */
  CudaStream(Gpu gpu) {
    super(gpu);
    // as the GPU's own stream: plain copies wait for it, and it for them
    gpu.check(JCudaDriver.cuStreamCreate(stream, 0), "creating a stream");
  }

  /**
   * Puts on this stream what {@code work} would put on the GPU's own.
   *
   * @throws IllegalStateException if it was closed
   */
  public void run(Runnable work) {
    gpu.run(
        () -> {
          requireLive();
          gpu.context().divert(stream, work);
        });
  }

  @Override
  void destroy() {
    gpu.released(JCudaDriver.cuStreamDestroy(stream), "freeing a stream");
  }
}
