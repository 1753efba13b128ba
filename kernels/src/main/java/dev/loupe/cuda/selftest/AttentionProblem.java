package dev.loupe.cuda.selftest;

import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.Segment;
import java.util.List;

/**
 * What is asked of the kernels of attention: which rows there are, and what each sees.
 *
 * @param segments of the rows; there are rows before, between and behind them
 * @param scale of the scores
 */
record AttentionProblem(int headSize, List<Segment> segments, boolean causal, float scale) {
  static final int HEADS = 2;
  static final int SEQUENCES = 3;

  /** Some rows that see more than a tile of keys: what the width of a head is tested with. */
  private static final List<Segment> FEW =
      List.of(new Segment(0, 3, 1, 1), new Segment(5, 13, 2, 58));

  /** Two tiles of rows, the second nearly empty, and a short segment. */
  private static final List<Segment> SHORT =
      List.of(new Segment(0, 3, 1, 1), new Segment(5, 66, 2, 5));

  /** Width of heads whose last key is the last element of the cache. */
  static final int TIGHT = 56;

  /** A problem of heads {@code headSize} wide; {@code most} where they have the usual width. */
  static AttentionProblem of(int headSize, List<Segment> most) {
    return switch (headSize) {
      case 64 -> new AttentionProblem(headSize, most, true, 0.5f);
      // scores so large that exp of one overflows
      case 40 -> new AttentionProblem(headSize, SHORT, true, 8);
      default -> new AttentionProblem(headSize, FEW, headSize != 72 && headSize != 120, 0.5f);
    };
  }

  int rows() {
    return segments.getLast().endRow() + 3;
  }

  /** With positions behind the last key, but for the tight one. */
  CacheShape cache() {
    int keys = segments.stream().mapToInt(Segment::keys).max().orElseThrow();
    return new CacheShape(SEQUENCES, HEADS, headSize == TIGHT ? keys : keys + 9, headSize);
  }

  /** Sequence, keys and position of each row; no keys where it is in no segment. */
  int[][] places() {
    int[][] places = new int[rows()][3];
    for (Segment s : segments) {
      for (int r = 0; r < s.rows(); r++) {
        int position = s.firstPosition() + r;
        int keys = causal ? position + 1 : s.keys();
        places[s.firstRow() + r] = new int[] {s.sequence(), keys, position};
      }
    }
    return places;
  }
}
