package dev.loupe.kernels;

import static dev.loupe.kernels.Parameter.INT;
import static dev.loupe.kernels.Parameter.POINTER;

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
  static final List<Variant> VARIANTS =
      List.of(
          new Variant(
              "embedding",
              "v1",
              "one block a row, 16 bytes a load",
              "",
              Set.of(Element.F32, Element.F16, Element.BF16),
              75));

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
    if (!VARIANTS.getFirst().elements().contains(table)
        || (x.element() != Element.F32 && x.element() != table)) {
      throw new IllegalArgumentException(
          "embedding: no kernel from %s tables to %s".formatted(table, x.element()));
    }
    launches
        .computeIfAbsent(kernel(table, x.element()), this::launch)
        .set(0, ids)
        .set(1, positions)
        .set(2, wte)
        .set(3, wpe)
        .set(4, x)
        .set(5, vocabulary)
        .set(6, places)
        .set(7, width)
        .run(rows, 1, 1, THREADS, 1, 0);
  }

  private static String kernel(Element table, Element x) {
    String name = VARIANTS.getFirst().kernel(table);
    return table == x ? name : name + "_" + x.suffix();
  }

  private Launch launch(String name) {
    return new Launch(
        gpu.kernel("embedding", name), POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT, INT);
  }
}
