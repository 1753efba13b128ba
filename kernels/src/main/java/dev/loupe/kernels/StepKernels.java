package dev.loupe.kernels;

import static dev.loupe.kernels.Parameter.INT;
import static dev.loupe.kernels.Parameter.POINTER;

import java.util.Arrays;
import java.util.List;
import java.util.Set;

/**
 * What a decode step needs besides the big kernels, so that it can be one graph, replayed with
 * nothing from the host.
 *
 * <p>Not for two threads at once.
 */
public final class StepKernels {
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

  /**
   * Where the rows of a step stand. During a step it is the place of the token that the step reads:
   * before the first one the host writes it, later {@link StepKernels#advance} does.
   *
   * @param sequences [R] I32: the row's sequence in the KV cache; stays
   * @param positions [R] I32: position of the token that is read
   * @param keys [R] I32: position + 1, the keys that the row attends to; also the place of the
   *     token that the step chooses, which {@link SampleKernels} takes as its positions
   * @param segments [R, 4] I32: {row, 1, sequence, position}, what {@link Segments} holds
   */
  public record Place(
      DeviceBuffer sequences, DeviceBuffer positions, DeviceBuffer keys, DeviceBuffer segments) {}

  public StepKernels(Gpu gpu) {
    this.gpu = gpu;
    Parameter[] parameters = new Parameter[10];
    Arrays.fill(parameters, POINTER);
    parameters[9] = INT;
    advance = new Launch(gpu.kernel("step", VARIANTS.getFirst().kernel(Element.I32)), parameters);
  }

  /**
   * Ends a step: hands over what it chose, and moves each row on by one position, to that of the
   * token that it chose. To be launched after all that reads {@code place}.
   *
   * <p>It knows no end: a row that has come to the end of its cache moves on, and the kernels of
   * the next step read and write nothing for it and give NaN. The host, which knows how far it let
   * the GPU run, does not let it get there, or does not look.
   *
   * @param chosen [rows] of the step, by {@link SampleKernels#sample}
   * @param place of the step's rows; all but sequences written
   * @param results [rows, 4] I32: {id, error, rank, bits of the f32 logprob}, 16 bytes a row;
   *     written, and again by the next step, so its copy to the host belongs between the two
   * @throws IllegalArgumentException if a buffer is too small, closed, of another element, or there
   *     twice
   */
  public void advance(SampleKernels.Chosen chosen, Place place, DeviceBuffer results, int rows) {
    BufferCheck check = new BufferCheck("advance", gpu);
    check.size("rows", rows, 1, Integer.MAX_VALUE - THREADS);
    check.holds("ids", chosen.ids(), Element.I32, rows);
    check.holds("logprobs", chosen.logprobs(), Element.F32, rows);
    check.holds("ranks", chosen.ranks(), Element.I32, rows);
    check.holds("errors", chosen.errors(), Element.I32, rows);
    check.holds("sequences", place.sequences(), Element.I32, rows);
    check.holds("positions", place.positions(), Element.I32, rows);
    check.holds("keys", place.keys(), Element.I32, rows);
    check.holds("segments", place.segments(), Element.I32, 4L * rows);
    check.holds("results", results, Element.I32, 4L * rows);
    DeviceBuffer[] buffers = {
      chosen.ids(),
      chosen.logprobs(),
      chosen.ranks(),
      chosen.errors(),
      place.sequences(),
      place.positions(),
      place.keys(),
      place.segments(),
      results
    };
    if (Arrays.stream(buffers).mapToLong(DeviceBuffer::address).distinct().count()
        < buffers.length) {
      throw new IllegalArgumentException("advance: two of its buffers are one");
    }
    for (int i = 0; i < buffers.length; i++) {
      advance.set(i, buffers[i]);
    }
    advance.set(9, rows).run(Math.ceilDiv(rows, THREADS), 1, 1, THREADS, 1, 0);
  }
}
