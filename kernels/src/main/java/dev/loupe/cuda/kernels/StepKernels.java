package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.INT;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Set;

/** What lies between two passes of decoding; see step.cu. */
public final class StepKernels {
  /** Ints of a row's result: id, error, rank, bits of the logprob. */
  public static final int RESULT_INTS = 4;

  static final List<Variant> VARIANTS =
      List.of(
          new Variant(
              "step",
              "advance",
              "one thread a row; the last kernel of a step",
              "every row is in use",
              Set.of(Element.I32),
              75));

  private static final int THREADS = 128;

  private final Gpu gpu;
  private final Launch advance;

  /** True if {@link #advance} computes rightly on this card; nothing plainer does the same. */
  public static boolean canAdvance(Gpu gpu) {
    return gpu.find(VARIANTS, Element.I32, 1).isPresent();
  }

  /**
   * Loads the kernels.
   *
   * @throws GpuException if there are none for this card and driver
   */
  public StepKernels(Gpu gpu) {
    this.gpu = gpu;
    advance =
        new Launch(gpu.kernel("step", "step_advance_i32"), Parameter.pointers(11, INT, INT))
            .waits();
  }

  /**
   * Where the rows of a step stand. All I32.
   *
   * @param sequence [rows] the row's sequence in the KV cache
   * @param position [rows] position in the sequence of the token that the next pass reads
   * @param place [rows] place in the whole run of the token that it chooses
   * @param keys [rows] keys that the row attends to: position + 1
   * @param segments [rows, 4] each row as a segment of its own
   * @param turn [rows] which results the row's go to
   */
  public record Rows(
      DeviceBuffer sequence,
      DeviceBuffer position,
      DeviceBuffer place,
      DeviceBuffer keys,
      DeviceBuffer segments,
      DeviceBuffer turn) {}

  /**
   * Moves every row on by one token and gathers what was chosen.
   *
   * @param results [turns, rows, {@link #RESULT_INTS}] I32: id, error, rank and the bits of the
   *     logprob, each row's in its turn, which moves on
   * @param turns how many there are
   * @throws IllegalArgumentException if a buffer is too small, closed, or of another element
   */
  public void advance(
      SampleKernels.Chosen chosen, Rows rows, DeviceBuffer results, int turns, int count) {
    BufferCheck check = new BufferCheck("step", gpu);
    check.size("rows", count, 1, Integer.MAX_VALUE / RESULT_INTS);
    check.size("turns", turns, 1, Integer.MAX_VALUE / RESULT_INTS / count);
    check.holds("ids", chosen.ids(), Element.I32, count);
    check.holds("logprobs", chosen.logprobs(), Element.F32, count);
    check.holds("ranks", chosen.ranks(), Element.I32, count);
    check.holds("errors", chosen.errors(), Element.I32, count);
    check.holds("sequence", rows.sequence(), Element.I32, count);
    check.holds("position", rows.position(), Element.I32, count);
    check.holds("place", rows.place(), Element.I32, count);
    check.holds("keys", rows.keys(), Element.I32, count);
    check.holds("segments", rows.segments(), Element.I32, 4L * count);
    check.holds("turn", rows.turn(), Element.I32, count);
    check.holds("results", results, Element.I32, (long) RESULT_INTS * turns * count);
    advance
        .set(0, chosen.ids())
        .set(1, chosen.logprobs())
        .set(2, chosen.ranks())
        .set(3, chosen.errors())
        .set(4, rows.sequence())
        .set(5, rows.position())
        .set(6, rows.place())
        .set(7, rows.keys())
        .set(8, rows.segments())
        .set(9, rows.turn())
        .set(10, results)
        .set(11, turns)
        .set(12, count)
        .run(Math.ceilDiv(count, THREADS), 1, 1, THREADS, 1, 0);
  }
}
