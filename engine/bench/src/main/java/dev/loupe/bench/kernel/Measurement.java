package dev.loupe.bench.kernel;

import dev.loupe.bench.Spread;
import dev.loupe.bench.kernel.Candidate.Resources;
import dev.loupe.ops.Precision;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What came of one candidate on one shape.
 *
 * @param variant the candidate's name
 * @param why it is wrong or was left out; empty if it is ok
 * @param error the worst error of the outputs that were looked at, as a part of what is allowed;
 *     NaN if none was
 * @param microseconds of each sample; none unless it is ok
 * @param work by formula
 * @param roofline the device's best around the samples
 */
public record Measurement(
    Shape shape,
    String variant,
    String idea,
    Precision precision,
    Status status,
    String why,
    double error,
    List<Double> microseconds,
    Problem.Work work,
    Device.Roofline roofline,
    @Nullable Resources resources) {
  /** Whether there are times. */
  public enum Status {
    OK,
    /** Its results are not those of double precision; it is not timed. */
    WRONG,
    /** It does not take the shape, or there is no room. */
    LEFT_OUT
  }

  public Measurement {
    microseconds = List.copyOf(microseconds);
    if ((status == Status.OK) == microseconds.isEmpty()) {
      throw new IllegalArgumentException(
          "%s with %d samples".formatted(status, microseconds.size()));
    }
  }

  /** The same with other times and ceilings. */
  public Measurement with(List<Double> microseconds, Device.Roofline roofline) {
    return new Measurement(
        shape,
        variant,
        idea,
        precision,
        status,
        why,
        error,
        microseconds,
        work,
        roofline,
        resources);
  }

  /** Of the times of one that is ok. */
  public Spread times() {
    return Spread.of(microseconds);
  }

  /**
   * Whether the times of both, which are ok, are apart: no value lies in the ranges from p10 to p90
   * of both, and each has samples enough to have a range.
   */
  public boolean differs(Measurement other) {
    int samples = Math.min(microseconds.size(), other.microseconds.size());
    return samples >= KernelComparison.LEAST_SAMPLES && !times().overlaps(other.times());
  }

  /** By the median. */
  public double bytesPerSecond() {
    return work.bytes() / times().median() * 1e6;
  }

  /** By the median. */
  public double operationsPerSecond() {
    return work.operations() / times().median() * 1e6;
  }

  /** By the median, of the best that the device could do with this work, 0 to 1. */
  public double ofRoofline() {
    return operationsPerSecond() / roofline.operationsPerSecond(work.intensity());
  }
}
