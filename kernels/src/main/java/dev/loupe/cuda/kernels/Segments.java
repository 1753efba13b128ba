package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import java.util.List;

/**
 * The segments of a pass, on the host for checks and launch sizes and on the device for the
 * kernels. Set once a pass, used by all its layers.
 */
public final class Segments implements AutoCloseable {
  /** Most that one axis of a grid counts. */
  static final int MAX_GRID = 65535;

  private final DeviceBuffer buffer; // I32 [max, 4]: firstRow, rows, sequence, firstPosition
  private final int max;
  private List<Segment> list = List.of();

  /**
   * @param max most segments of a pass
   * @throws IllegalArgumentException if {@code max} is not from 1 to 65535
   * @throws GpuException if there is no memory for them
   */
  public Segments(Gpu gpu, int max) {
    AttentionArguments.range("most segments of a pass", max, 1, MAX_GRID);
    this.max = max;
    buffer = gpu.allocate(Element.I32, 4L * max);
  }

  /**
   * Replaces the segments.
   *
   * @param segments in the order of their rows; there may be rows between them that no segment has
   * @throws IllegalArgumentException if two overlap, or there are too many
   */
  public void set(List<Segment> segments) {
    AttentionArguments.range("segments of a pass", segments.size(), 0, max);
    int[] values = new int[4 * segments.size()];
    int end = 0;
    for (int i = 0; i < segments.size(); i++) {
      Segment s = segments.get(i);
      if (s.firstRow() < end) {
        throw new IllegalArgumentException(
            "segment %d starts at row %d, before row %d where the one before it ends"
                .formatted(i, s.firstRow(), end));
      }
      end = s.endRow();
      values[4 * i] = s.firstRow();
      values[4 * i + 1] = s.rows();
      values[4 * i + 2] = s.sequence();
      values[4 * i + 3] = s.firstPosition();
    }
    buffer.upload(values);
    list = List.copyOf(segments);
  }

  /** The segments, in the order of their rows. */
  public List<Segment> list() {
    return list;
  }

  /** How many there are. */
  public int count() {
    return list.size();
  }

  /** I32 [count, 4]: {first row, rows, sequence, first position} each. */
  public DeviceBuffer buffer() {
    return buffer;
  }

  /** Rows up to the end of the last segment. */
  int endRow() {
    return list.isEmpty() ? 0 : list.getLast().endRow();
  }

  /** Rows of the longest segment. */
  int longest() {
    return list.stream().mapToInt(Segment::rows).max().orElse(0);
  }

  /** Keys of the segment that has the most. */
  int mostKeys() {
    return list.stream().mapToInt(Segment::keys).max().orElse(0);
  }

  /** Frees the device's copy. */
  @Override
  public void close() {
    buffer.close();
  }
}
