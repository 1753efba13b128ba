package dev.loupe.bench.kernel;

/** Outputs of a problem by plain loops in double precision, one at a time, textbook order. */
abstract class Reference {
  /** The output with an index of {@link Problem#outputs}. */
  abstract double at(long index);

  static Reference of(Problem problem) {
    return switch (problem.shape().operation()) {
      case ATTENTION, DECODE_ATTENTION, MAP -> new Attending(problem);
      case LINEAR -> new Product(problem);
      case LAYERNORM, SOFTMAX -> new OfRows(problem);
      case GELU -> new Gelu(problem);
    };
  }

  private static final class Attending extends Reference {
    private final Problem problem;
    private final int tokens;
    private final int heads;
    private final int d;
    private final double[] p;
    private long row = -1; // and head, whose probabilities are in p

    Attending(Problem problem) {
      this.problem = problem;
      tokens = problem.shape().size("T");
      heads = problem.shape().size("H");
      d = problem.shape().size("D");
      p = new double[tokens];
    }

    @Override
    double at(long index) {
      if (problem.shape().operation() == Operation.MAP) {
        long row = index / tokens;
        attend((int) (row % tokens), (int) (row / tokens));
        return p[(int) (index % tokens)];
      }
      int column = (int) (index % ((long) heads * d));
      int query =
          problem.shape().operation() == Operation.DECODE_ATTENTION
              ? tokens - 1
              : (int) (index / ((long) heads * d));
      attend(query, column / d);
      double sum = 0;
      for (int key = 0; key <= query; key++) {
        sum += p[key] * element(key, 2, column);
      }
      return sum;
    }

    private double element(int token, int part, int column) {
      int width = heads * d;
      return problem.x()[(token * 3 + part) * width + column];
    }

    private void attend(int query, int head) {
      if (row == (long) head * tokens + query) {
        return;
      }
      row = (long) head * tokens + query;
      double most = Double.NEGATIVE_INFINITY;
      for (int key = 0; key <= query; key++) {
        double score = 0;
        for (int j = 0; j < d; j++) {
          score += element(query, 0, head * d + j) * element(key, 1, head * d + j);
        }
        p[key] = score * problem.scale();
        most = Math.max(most, p[key]);
      }
      double sum = 0;
      for (int key = 0; key <= query; key++) {
        p[key] = Math.exp(p[key] - most);
        sum += p[key];
      }
      for (int key = 0; key <= query; key++) {
        p[key] /= sum;
      }
    }
  }

  private static final class Product extends Reference {
    private final Problem problem;
    private final int inputs;
    private final int outputs;

    Product(Problem problem) {
      this.problem = problem;
      inputs = problem.shape().size("K");
      outputs = problem.shape().size("N");
    }

    @Override
    double at(long index) {
      int row = (int) (index / outputs);
      int n = (int) (index % outputs);
      double sum = problem.bias()[n];
      for (int k = 0; k < inputs; k++) {
        sum += (double) problem.x()[row * inputs + k] * problem.weight()[k * outputs + n];
      }
      return sum;
    }
  }

  /** Layer normalisation, or softmax. */
  private static final class OfRows extends Reference {
    private final Problem problem;
    private final int width;
    private final double[] y;
    private long row = -1; // which is in y

    OfRows(Problem problem) {
      this.problem = problem;
      width = problem.shape().size("C");
      y = new double[width];
    }

    @Override
    double at(long index) {
      if (row != index / width) {
        row = index / width;
        for (int i = 0; i < width; i++) {
          y[i] = problem.x()[(int) row * width + i];
        }
        if (problem.shape().operation() == Operation.SOFTMAX) {
          softmax();
        } else {
          normalise();
        }
      }
      return y[(int) (index % width)];
    }

    private void softmax() {
      double most = Double.NEGATIVE_INFINITY;
      for (double value : y) {
        most = Math.max(most, value);
      }
      double sum = 0;
      for (int i = 0; i < width; i++) {
        y[i] = Math.exp(y[i] - most);
        sum += y[i];
      }
      for (int i = 0; i < width; i++) {
        y[i] /= sum;
      }
    }

    private void normalise() {
      double mean = 0;
      for (double value : y) {
        mean += value / width;
      }
      double variance = 0;
      for (double value : y) {
        variance += (value - mean) * (value - mean) / width;
      }
      double deviation = Math.sqrt(variance + problem.epsilon());
      for (int i = 0; i < width; i++) {
        y[i] = (y[i] - mean) / deviation * problem.weight()[i] + problem.bias()[i];
      }
    }
  }

  private static final class Gelu extends Reference {
    private final Problem problem;

    Gelu(Problem problem) {
      this.problem = problem;
    }

    @Override
    double at(long index) {
      double x = problem.x()[(int) index];
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));
    }
  }
}
