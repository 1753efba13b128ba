package dev.loupe.cuda;

/** What a driver keeps for an opened GPU until it is closed: a stream, an event, a graph. */
abstract class DriverObject implements AutoCloseable {
  final Gpu gpu;
  private boolean destroyed; // only the GPU's thread's

  DriverObject(Gpu gpu) {
    this.gpu = gpu;
  }

  /** Gives it back to the driver. On the GPU's thread. */
  abstract void destroy();

  /** On the GPU's thread. */
  final void requireLive() {
    if (destroyed) {
      throw new IllegalStateException(
          "a %s is used after it was closed".formatted(getClass().getSimpleName()));
    }
  }

  /** Frees what the driver holds for it; once is enough, more do nothing. */
  @Override
  public final void close() {
    if (gpu.isClosed()) {
      return; // the context took it along
    }
    gpu.run(
        () -> {
          if (!destroyed) {
            destroyed = true;
            destroy();
          }
        });
  }
}
