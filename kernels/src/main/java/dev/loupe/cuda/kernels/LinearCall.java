package dev.loupe.cuda.kernels;

import dev.loupe.cuda.driver.GpuException;

/**
 * A linear map with all its buffers, checked and ready: one for each place of a model, made once.
 * Running it allocates nothing. Not for two threads at once.
 */
@FunctionalInterface
public interface LinearCall {
  /**
   * Puts the map of the first {@code rows} rows of x on the GPU's stream.
   *
   * @throws IllegalArgumentException if {@code rows} is not between 1 and what the buffers and the
   *     kernel hold, or a buffer was closed since
   * @throws GpuException if the GPU was closed, or the driver refuses the launch
   */
  void run(int rows);
}
