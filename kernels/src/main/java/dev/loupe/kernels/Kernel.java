package dev.loupe.kernels;

/** One entry point of a loaded module; lives as long as its {@link Gpu}. */
public final class Kernel {
  private final Gpu gpu;
  private final String name;

  Kernel(Gpu gpu, String name) {
    this.gpu = gpu;
    this.name = name;
  }

  /** Name of the entry point, e.g. {@code linear_v4_bf16}. */
  public String name() {
    return name;
  }

  /** The GPU that it is loaded on. */
  public Gpu gpu() {
    return gpu;
  }
}
