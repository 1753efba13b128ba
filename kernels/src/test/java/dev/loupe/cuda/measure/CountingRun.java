package dev.loupe.cuda.measure;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.kernels.KernelCatalogue;
import java.nio.charset.StandardCharsets;

/**
 * Runs every variant of the catalogue once on the counting emulator, and the kernels whose counts
 * are known, and prints a line of {@link Counts} for each. A program of its own, since a process
 * has one driver.
 */
final class CountingRun implements AutoCloseable {
  /** What the variants are counted on; it shows in README.md. */
  static final VariantRuns.Shapes SHAPES =
      new VariantRuns.Shapes(
          64,
          768,
          50_257,
          new VariantRuns.InOut(256, 256),
          new VariantRuns.InOut(768, 768),
          1,
          64,
          256,
          64,
          512);

  /** Family of the kernels whose counts are known. */
  static final String SELF = "self";

  private static final byte[] EVERY_KERNEL = "// emulated".getBytes(StandardCharsets.US_ASCII);

  private final Gpu gpu = Gpu.open(0, (file, computeCapability, driver) -> EVERY_KERNEL);
  private final VariantRuns runs = new VariantRuns(gpu, SHAPES);

  public static void main(String[] args) {
    try (CountingRun run = new CountingRun()) {
      Emulator.options(Emulator.Schedule.FORWARD, 0, true); // cp.async where the source has it
      System.out.println(Counts.compiler());
      run.self();
      for (Variant v : KernelCatalogue.all()) {
        run.count(v);
      }
    }
  }

  private void count(Variant v) {
    Element element =
        v.elements().contains(Element.F16) ? Element.F16 : v.elements().iterator().next();
    VariantRuns.Run run = runs.of(v, element);
    Counts counts =
        Counts.of(
            gpu, v.family(), v.name(), element, run.leastRead(), run.leastWritten(), run.work());
    System.out.println(counts.line());
  }

  /** Kernels of count_kernels.cu; {@link CountsTest} knows what they must give. */
  private void self() {
    DeviceBuffer x = runs.floats(Element.F32, 128, 32);
    DeviceBuffer y = runs.empty(Element.F32, 128);
    for (int stride : new int[] {0, 1, 8}) {
      Launch global = launch("count_global", Parameter.POINTER, Parameter.POINTER, Parameter.INT);
      self("global " + stride, 0, global.set(0, x).set(1, y).set(2, stride));
    }
    for (int stride : new int[] {1, 2}) {
      Launch vector = launch("count_vector", Parameter.POINTER, Parameter.POINTER, Parameter.INT);
      self("vector " + stride, 0, vector.set(0, x).set(1, y).set(2, stride));
    }
    int[][] accesses = {
      {4, 0}, {4, 4}, {4, 8}, {4, 128}, {8, 8}, {8, 16}, {16, 16}, {16, 32}, {16, 144}
    };
    for (int[] a : accesses) {
      Launch shared = launch("count_shared", Parameter.INT, Parameter.INT);
      self("shared %d %d".formatted(a[0], a[1]), 32 * 144, shared.set(0, a[0]).set(1, a[1]));
    }
    for (int stride : new int[] {16, 128}) {
      Launch tensor =
          launch(
              "count_tensor", Parameter.POINTER, Parameter.INT, Parameter.INT, Parameter.POINTER);
      self("tensor " + stride, 32 * 128, tensor.set(0, x).set(1, 20).set(2, stride).setNull(3));
    }
    Launch diverged = launch("count_diverged", Parameter.POINTER, Parameter.POINTER);
    self("diverged", 0, diverged.set(0, x).setNull(1));
  }

  private Launch launch(String kernel, Parameter... parameters) {
    return new Launch(gpu.kernel("count_kernels", kernel), parameters);
  }

  private void self(String name, int sharedBytes, Launch launch) {
    Counts counts =
        Counts.of(
            gpu, SELF, name, Element.F32, 0, 0, () -> launch.run(1, 1, 1, 32, 1, sharedBytes));
    System.out.println(counts.line());
  }

  @Override
  public void close() {
    runs.close();
    gpu.close();
  }
}
