package dev.loupe.cuda.measure;

import dev.loupe.cuda.ColdTimer;
import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Times every variant of the catalogue that the card takes, on the shapes of GPT-2 124M, and the
 * card's own ceilings: the bandwidth of a copy and the rate of a large matrix product. A line of
 * JSON for each.
 *
 * <p>Caches are cold ({@link ColdTimer}). A launch that does next to nothing still takes the time
 * between two events; that of {@code step} is about this.
 */
final class KernelBenchmark {
  /** A prompt of 1,024 tokens and a row that sees as many; maps of the last 64 rows. */
  static final VariantRuns.Shapes GPT2 =
      new VariantRuns.Shapes(
          1024,
          768,
          50_257,
          new VariantRuns.InOut(768, 3072),
          new VariantRuns.InOut(768, 50_257),
          12,
          64,
          1024,
          64,
          1024);

  private static final int PRODUCT = 8192; // rows and columns of the large product

  private final Gpu gpu;
  private final int samples;
  private final Consumer<String> out;
  private final ColdTimer timer;

  private KernelBenchmark(Gpu gpu, int samples, ColdTimer timer, Consumer<String> out) {
    this.gpu = gpu;
    this.samples = samples;
    this.timer = timer;
    this.out = out;
  }

  public static void main(String[] args) {
    try (Gpu gpu = Emulator.open()) {
      if (Emulator.isDriver()) {
        System.out.println("emulated: nothing here is a GPU's time, tiny shapes, one sample");
        run(gpu, tiny(), 1, 1 << 20, 64, System.out::println);
      } else {
        run(gpu, GPT2, 30, ColdTimer.USUAL_BYTES, PRODUCT, System.out::println);
      }
    }
  }

  /** What the emulator does in seconds. */
  static VariantRuns.Shapes tiny() {
    return new VariantRuns.Shapes(
        16,
        128,
        1000,
        new VariantRuns.InOut(128, 192),
        new VariantRuns.InOut(64, 72),
        2,
        64,
        32,
        16,
        40);
  }

  /**
   * @param copied bytes that a copy takes
   * @param product rows and columns of the large product
   */
  static void run(
      Gpu gpu,
      VariantRuns.Shapes shapes,
      int samples,
      long copied,
      int product,
      Consumer<String> out) {
    try (ColdTimer timer = new ColdTimer(gpu, copied)) {
      KernelBenchmark benchmark = new KernelBenchmark(gpu, samples, timer, out);
      benchmark.copy();
      for (Variant v : KernelCatalogue.all()) {
        for (Element e : v.elements().stream().sorted().toList()) {
          if (v.supports(e, gpu.computeCapability())) {
            shapesOf(v, shapes).forEach(s -> benchmark.time(v, e, s));
          }
        }
      }
      benchmark.product(product); // last, as a broken cuBLAS ends the program
    }
  }

  /** Those given, and for maps those of the other maps of a layer. */
  private static Stream<VariantRuns.Shapes> shapesOf(Variant v, VariantRuns.Shapes shapes) {
    int c = shapes.width();
    List<VariantRuns.InOut> ofLayer =
        List.of(
            new VariantRuns.InOut(c, 3 * c),
            new VariantRuns.InOut(c, c),
            new VariantRuns.InOut(c, 4 * c),
            new VariantRuns.InOut(4 * c, c));
    return switch (v.family()) {
      case "linear" -> ofLayer.stream().map(shapes::linear);
      case "gemv" -> Stream.concat(ofLayer.stream().map(shapes::gemv), Stream.of(shapes));
      default -> Stream.of(shapes);
    };
  }

  private void time(Variant v, Element e, VariantRuns.Shapes shapes) {
    try (VariantRuns runs = new VariantRuns(gpu, shapes)) {
      VariantRuns.Run run = runs.of(v, e);
      out.accept(
          String.format(
              Locale.ROOT,
              "{\"kernel\": \"%s\", \"variant\": \"%s\", \"element\": \"%s\", \"shape\": \"%s\","
                  + " \"bytes\": %d, \"us\": %s}",
              v.family(),
              v.name(),
              e.suffix(),
              shapes.of(v.family()),
              run.leastRead() + run.leastWritten(),
              microseconds(run.work()).json()));
    }
  }

  private Spread microseconds(Runnable work) {
    return Spread.of(3, samples, () -> timer.microseconds(work));
  }

  private void copy() {
    long bytes = timer.copiedBytes();
    Spread us = Spread.of(3, samples, timer::copyMicroseconds);
    out.accept(
        "{\"ceiling\": \"copy\", \"shape\": \"%s\", \"GB_per_s\": %s}"
            .formatted(Gpu.size(bytes), us.rate(2e-3 * bytes).json()));
  }

  /** By cuBLAS where it is found, else by the best of our own. */
  private void product(int n) {
    try (VariantRuns runs = new VariantRuns(gpu, GPT2)) {
      DeviceBuffer x = runs.floats(Element.F16, n, n);
      DeviceBuffer w = runs.floats(Element.F16, n, n);
      DeviceBuffer y = runs.empty(Element.F16, n, n);
      Cublas cublas = Cublas.open(gpu).orElse(null);
      LinearMap map = new LinearMap(w, null, null, n, n);
      LinearKernels own = new LinearKernels(gpu);
      Variant best = own.variantFor(map, n);
      LinearCall call =
          own.prepare(best, map, x, new LinearEpilogue.Output(y, KernelActivation.NONE));
      Runnable work =
          cublas == null ? () -> call.run(n) : () -> cublas.linear(x, w, y, n, n, n, false);
      try {
        out.accept(
            "{\"ceiling\": \"f16 product\", \"by\": \"%s\", \"shape\": \"%s\", \"TFLOP_per_s\": %s}"
                .formatted(
                    cublas == null ? "linear " + best.name() : "cuBLAS " + cublas.version(),
                    "%d x %d x %d".formatted(n, n, n),
                    microseconds(work).rate(2e-6 * Math.pow(n, 3)).json()));
      } finally {
        if (cublas != null) {
          cublas.close();
        }
      }
    }
  }
}
