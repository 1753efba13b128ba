package dev.loupe.cuda.kernels;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.DeviceScratch;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Set;

/**
 * Linear maps by cuBLAS: its product in f32, then one kernel for the epilogue. For maps of many
 * rows. Not for two threads at once.
 */
public final class CublasLinear implements AutoCloseable {
  private static final String FAMILY = "epilogue";
  private static final int THREADS = 256;

  static final List<Variant> VARIANTS =
      List.of(
          new Variant(
              FAMILY,
              "v0",
              "what follows a product that cuBLAS made, one thread a sum",
              "",
              Set.of(Element.F32),
              75),
          new Variant(
              FAMILY,
              "v1",
              "what follows a product that cuBLAS made, 16 bytes a load",
              "",
              Set.of(Element.F32),
              75));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();

  private final Gpu gpu;
  private final Cublas cublas;
  private final DeviceScratch sums; // [R, outputs]

  /**
   * @param cublas closed with this
   */
  public CublasLinear(Gpu gpu, Cublas cublas) {
    this.gpu = gpu;
    this.cublas = cublas;
    this.sums = new DeviceScratch(gpu, Element.F32);
  }

  /** True if cuBLAS multiplies such elements: those of x and W are one, f32, f16 or bf16. */
  public static boolean takes(LinearMap map, DeviceBuffer x) {
    return map.weight().element() == x.element() && x.element().isFloat();
  }

  /** True if what follows the product of so many rows computes rightly on this card. */
  public boolean isUsable(int rows) {
    return gpu.find(BEST_FIRST, Element.F32, rows).isPresent();
  }

  /**
   * Prepares a call.
   *
   * @param x [R, in] of the element of W
   * @throws IllegalArgumentException if a buffer is too small, closed, of another element, on
   *     another GPU or overlaps another
   */
  public LinearCall prepare(LinearMap map, DeviceBuffer x, LinearEpilogue epilogue) {
    BufferCheck check = new BufferCheck("linear by cuBLAS", gpu);
    if (!takes(map, x)) {
      throw new IllegalArgumentException(
          "%s: no product of x in %s and W in %s"
              .formatted(check.operation(), x.element(), map.weight().element()));
    }
    LinearArguments arguments = new LinearArguments(check, map, x, epilogue);
    int maxRows = arguments.maxRows(Integer.MAX_VALUE / map.outputs());
    Variant variant = gpu.choose(BEST_FIRST, Element.F32, maxRows);
    Launch launch = epilogue(variant, arguments);
    return rows -> {
      check.size("rows", rows, 1, maxRows);
      DeviceBuffer product = sums.atLeast((long) rows * map.outputs());
      cublas.linear(x, map.weight(), product, rows, map.in(), map.outputs(), false);
      finish(variant, launch.set(0, product), rows, map.outputs());
    };
  }

  /** Of a product that is set before each run. */
  public static Launch epilogue(Variant variant, LinearArguments arguments) {
    Gpu gpu = arguments.map().weight().gpu();
    String name = variant.kernel(Element.F32) + arguments.ending();
    return arguments.bindEpilogue(gpu.kernel(FAMILY, name));
  }

  /** Puts the epilogue of {@code rows} rows on the stream. */
  public static void finish(Variant variant, Launch launch, int rows, int outputs) {
    int ofRow = variant.isPlain() ? outputs : Math.ceilDiv(outputs, 4);
    int blocks = Math.toIntExact(Math.ceilDiv((long) rows * ofRow, (long) THREADS));
    launch.set(3, rows).run(blocks, 1, 1, THREADS, 1, 0);
  }

  /** Frees the memory of products, which a later call takes anew. */
  public void freeProducts() {
    sums.close();
  }

  /** Frees the memory of products and closes cuBLAS. */
  @Override
  public void close() {
    freeProducts();
    cublas.close();
  }
}
