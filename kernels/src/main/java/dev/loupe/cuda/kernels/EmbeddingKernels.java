package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Kernel;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Token and position embedding: x[r] = wte[ids[r]] + wpe[positions[r]].
 *
 * <p>Not for two threads at once.
 */
public final class EmbeddingKernels {
  private static final Set<Element> ELEMENTS = Set.of(Element.F32, Element.F16, Element.BF16);

  static final List<Variant> VARIANTS =
      List.of(
          new Variant("embedding", "v0", "one thread an element", "", ELEMENTS, 75),
          new Variant("embedding", "v1", "one block a row, 16 bytes a load", "", ELEMENTS, 75));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();

  private static final int THREADS = 128;

  private final Gpu gpu;
  private final Map<String, Launch> launches = new HashMap<>();

  /** On {@code gpu}; each kernel is loaded when it is first needed. */
  public EmbeddingKernels(Gpu gpu) {
    this.gpu = gpu;
  }

  /**
   * Writes the sum of a token's and a position's row for each of {@code rows} rows.
   *
   * <p>An id or position that its table lacks makes its row NaN, since ids may have been chosen on
   * the device; ids that the host knows are the caller's to check.
   *
   * @param ids [rows] I32
   * @param positions [rows] I32
   * @param wte [vocabulary, width] F32, F16 or BF16
   * @param wpe [places, width] of wte's element
   * @param x [rows, width] F32 or wte's element; written
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   * @throws GpuException if no kernel computes rightly on this card, or the launch fails
   */
  public void embed(
      DeviceBuffer ids,
      DeviceBuffer positions,
      DeviceBuffer wte,
      DeviceBuffer wpe,
      DeviceBuffer x,
      int rows,
      int vocabulary,
      int places,
      int width) {
    Element table = wte.element();
    BufferCheck check = new BufferCheck("embedding", gpu);
    check.size("rows", rows, 1, Integer.MAX_VALUE);
    check.size("vocabulary", vocabulary, 1, Integer.MAX_VALUE);
    check.size("places", places, 1, Integer.MAX_VALUE);
    check.size("width", width, 1, 1 << 20);
    check.holds("ids", ids, Element.I32, rows);
    check.holds("positions", positions, Element.I32, rows);
    check.holds("wte", wte, (long) vocabulary * width);
    check.holds("wpe", wpe, table, (long) places * width);
    check.holds("x", x, (long) rows * width);
    if (!ELEMENTS.contains(table) || (x.element() != Element.F32 && x.element() != table)) {
      throw new IllegalArgumentException(
          "embedding: no kernel from %s tables to %s".formatted(table, x.element()));
    }
    Variant variant = gpu.choose(BEST_FIRST, table, rows);
    String name = variant.kernel(table);
    if (!variant.isPlain() && table != x.element()) {
      name += "_" + x.element().suffix();
    }
    Launch launch =
        launches
            .computeIfAbsent(name, n -> launch(n, variant.isPlain()))
            .set(0, ids)
            .set(1, positions)
            .set(2, wte)
            .set(3, wpe)
            .set(4, x)
            .set(5, vocabulary)
            .set(6, places)
            .set(7, width);
    if (variant.isPlain()) {
      launch.set(8, table.code()).set(9, x.element().code());
    }
    launch.run(rows, variant.isPlain() ? Math.ceilDiv(width, THREADS) : 1, 1, THREADS, 1, 0);
  }

  private Launch launch(String name, boolean plain) {
    List<Parameter> parameters =
        new ArrayList<>(List.of(POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT, INT));
    if (plain) {
      parameters.addAll(List.of(INT, INT)); // elements of the tables and of x
    }
    Kernel kernel = gpu.kernel("embedding", name);
    return new Launch(kernel, parameters.toArray(Parameter[]::new)).waits();
  }
}
