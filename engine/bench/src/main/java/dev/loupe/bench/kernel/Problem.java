package dev.loupe.bench.kernel;

import dev.loupe.ops.Precision;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Random;
import java.util.Set;

/**
 * Inputs of an operation on one shape, always the same for all candidates, and what has to come of
 * them in double precision. Values are random; for precisions below f32 they are multiples of 1/128
 * within 1, which f16, bf16 and int8 hold exactly, so that every precision is held to the same
 * answer.
 */
public final class Problem {
  private static final int CHECKED_ROWS = 48; // of the output, or of a head
  private static final int CHECKED_COLUMNS = 64; // of each
  private static final int GROUP = 64; // inputs that share a scale in int8

  private final Shape shape;
  private final Precision precision;
  private final Reference reference;
  private final float[] x;
  private final float[] weight;
  private final float[] bias;

  /**
   * @throws IllegalArgumentException if the shape is too large for Java's arrays
   * @throws OutOfMemoryError if it is too large for the heap
   */
  public Problem(Shape shape, Precision precision) {
    shape.requireIndexable();
    this.shape = shape;
    this.precision = precision;
    Random random = new Random(20_26);
    int rows = shape.sizes().getFirst();
    switch (shape.operation()) {
      case ATTENTION, MAP, DECODE_ATTENTION -> {
        int c = shape.size("H") * shape.size("D");
        x = values(random, rows * 3 * c, 1);
        for (int i = 0; i < x.length; i++) {
          if (i % (3 * c) < c) {
            x[i] *= 4; // q: scores spread like a model's, by one or two
          }
        }
        weight = new float[0];
        bias = new float[0];
      }
      case LINEAR -> {
        x = values(random, rows * shape.size("K"), 1);
        weight = values(random, shape.size("K") * shape.size("N"), 1);
        bias = values(random, shape.size("N"), 1);
        if (precision == Precision.INT8) {
          for (int k = 0; k < shape.size("K"); k += GROUP) { // each group's scale is 1/128
            Arrays.fill(weight, k * shape.size("N"), (k + 1) * shape.size("N"), 127 / 128f);
          }
        }
      }
      case LAYERNORM, SOFTMAX, GELU -> {
        int c = shape.size("C");
        x = values(random, rows * c, shape.operation() == Operation.LAYERNORM ? 1 : 4);
        weight = values(random, c, 1);
        bias = values(random, c, 1);
      }
      default -> throw new AssertionError(shape.operation());
    }
    reference = Reference.of(this);
  }

  private float[] values(Random random, int n, float factor) {
    float[] values = new float[n];
    boolean all = precision == Precision.F32;
    for (int i = 0; i < n; i++) {
      values[i] = factor * (all ? random.nextFloat(-1, 1) : random.nextInt(-127, 128) / 128f);
    }
    return values;
  }

  public Shape shape() {
    return shape;
  }

  public Precision precision() {
    return precision;
  }

  /**
   * The rows: q, k and v side by side, [T, 3 H D], for what attends (of DECODE_ATTENTION, all T
   * keys and values; q is that of the last row); otherwise [M, K] or [R, C].
   */
  public float[] x() {
    return x;
  }

  /** [K, N] as Conv1D has it; of LAYERNORM its weight [C]; otherwise of no use. */
  public float[] weight() {
    return weight;
  }

  /** [N], or of LAYERNORM [C]; otherwise of no use. */
  public float[] bias() {
    return bias;
  }

  /** Factor on q . k: 1 / sqrt(D). */
  public float scale() {
    return (float) (1 / Math.sqrt(shape.size("D")));
  }

  /** Added to the variance in LAYERNORM. */
  public float epsilon() {
    return 1e-5f;
  }

  /**
   * Outputs, with an index each: y [T, H D] of ATTENTION, [H D] of DECODE_ATTENTION, P [H, T, T] of
   * MAP (those above the diagonal are nobody's), [M, N] or [R, C].
   */
  public long outputs() {
    long rows = shape.sizes().getFirst();
    return switch (shape.operation()) {
      case ATTENTION -> rows * shape.size("H") * shape.size("D");
      case DECODE_ATTENTION -> (long) shape.size("H") * shape.size("D");
      case MAP -> rows * rows * shape.size("H");
      case LINEAR -> rows * shape.size("N");
      case LAYERNORM, SOFTMAX, GELU -> rows * shape.size("C");
    };
  }

  /** Values of one row of outputs that stand side by side. */
  private int rowLength() {
    return switch (shape.operation()) {
      case ATTENTION, DECODE_ATTENTION -> shape.size("D"); // of one head
      case MAP -> shape.size("T");
      case LINEAR -> shape.size("N");
      case LAYERNORM, SOFTMAX, GELU -> shape.size("C");
    };
  }

  /**
   * The outputs that are checked: some of each of up to {@value #CHECKED_ROWS} rows, the first and
   * the last ones among them.
   */
  long[] checked() {
    Random random = new Random(7);
    int length = rowLength();
    long rows = outputs() / length;
    Set<Long> some = new LinkedHashSet<>();
    for (long r = 0; r < Math.min(rows, CHECKED_ROWS); r++) {
      long row =
          rows <= CHECKED_ROWS ? r : r < 4 ? r : r < 8 ? rows - 8 + r : random.nextLong(rows);
      int columns = shape.operation() == Operation.MAP ? (int) (row % shape.size("T")) + 1 : length;
      for (int c = 0; c < Math.min(columns, CHECKED_COLUMNS); c++) {
        int column =
            columns <= CHECKED_COLUMNS
                ? c
                : c < 8 ? c : c < 16 ? columns - 16 + c : random.nextInt(columns);
        some.add(row * length + column);
      }
    }
    return some.stream().mapToLong(Long::longValue).sorted().toArray();
  }

  /** An output in double precision; fast in the order of {@link #checked}. */
  double expected(long index) {
    return reference.at(index);
  }

  /**
   * How far an output may be from {@code expected}. Sums of up to some thousand terms in f32, and a
   * rounding or two to the precision of activations; what is small because it is an average, or a
   * share, of many may be off by less.
   */
  double allowed(long index, double expected) {
    double part =
        switch (precision) {
          case F32, INT8 -> 1e-4;
          case F16 -> 2e-3;
          case BF16 -> 1.6e-2;
        };
    double usual =
        switch (shape.operation()) {
          case ATTENTION -> {
            double keys = 1 + index / ((double) shape.size("H") * shape.size("D"));
            yield 1 / Math.sqrt(keys);
          }
          case DECODE_ATTENTION -> 1 / Math.sqrt(shape.size("T"));
          case MAP -> 1.0 / (index / shape.size("T") % shape.size("T") + 1);
          case SOFTMAX -> 1.0 / shape.size("C");
          case LINEAR, LAYERNORM, GELU -> 1;
        };
    return part * (usual + Math.abs(expected));
  }

  /**
   * What has to be moved and computed, whoever does it: inputs read once, outputs written once,
   * products and sums; an exponential counts as one operation.
   *
   * @param bytes read or written
   * @param operations a multiply-add is two
   */
  public record Work(double bytes, double operations) {
    /** Operations for each byte. */
    public double intensity() {
      return operations / bytes;
    }

    /**
     * That of a shape.
     *
     * @param activationBytes of an element of a row, of K and of V; maps and log-sum-exp are f32
     * @param weightBytes of an element of a weight, its share of the scales included
     */
    public static Work of(Shape shape, int activationBytes, double weightBytes) {
      double rows = shape.sizes().getFirst();
      double a = activationBytes;
      return switch (shape.operation()) {
        case ATTENTION -> {
          double h = shape.size("H");
          double d = shape.size("D");
          double pairs = h * rows * (rows + 1) / 2;
          yield new Work(4 * rows * h * d * a + 4 * rows * h, pairs * (4 * d + 5));
        }
        case DECODE_ATTENTION -> {
          double h = shape.size("H");
          double d = shape.size("D");
          yield new Work(2 * (rows + 1) * h * d * a + 4 * h, h * rows * (4 * d + 5));
        }
        case MAP -> {
          double h = shape.size("H");
          double d = shape.size("D");
          double pairs = h * rows * (rows + 1) / 2;
          yield new Work(2 * rows * h * d * a + 4 * rows * h + 4 * pairs, pairs * (2 * d + 3));
        }
        case LINEAR -> {
          double k = shape.size("K");
          double n = shape.size("N");
          yield new Work(
              rows * (k + n) * a + k * n * weightBytes + 4 * n, 2 * rows * k * n + rows * n);
        }
        case LAYERNORM -> {
          double c = shape.size("C");
          yield new Work(2 * rows * c * a + 8 * c, 8 * rows * c);
        }
        case SOFTMAX -> new Work(2 * rows * shape.size("C") * a, 5 * rows * shape.size("C"));
        case GELU -> new Work(2 * rows * shape.size("C") * a, 9 * rows * shape.size("C"));
      };
    }
  }
}
