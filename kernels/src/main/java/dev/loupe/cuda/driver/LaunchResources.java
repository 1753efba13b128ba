package dev.loupe.cuda.driver;

/**
 * What a launch takes of a multiprocessor.
 *
 * @param kernel name of the entry point
 * @param registers of a thread; 0 where the driver does not say (the emulator, of PTX)
 * @param sharedBytes of a block, static and dynamic
 * @param threads of a block
 * @param blocks of the grid
 * @param occupancy warps that are resident at once, of those that a multiprocessor has room for, 0
 *     to 1; by the driver's count for the kernel's registers, shared memory and block size
 */
public record LaunchResources(
    String kernel, int registers, int sharedBytes, int threads, long blocks, double occupancy) {
  /** All threads of the grid. */
  public long allThreads() {
    return threads * blocks;
  }
}
