package dev.loupe.bench.kernel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.bench.kernel.Problem.Work;
import dev.loupe.ops.Precision;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ProblemTest {
  private static Problem of(Operation operation, Integer... sizes) {
    return new Problem(Shape.of(operation, sizes), Precision.F32);
  }

  private static void assertWork(double bytes, double operations, Work work) {
    assertEquals(bytes, work.bytes());
    assertEquals(operations, work.operations());
  }

  /** GPT-2 124M at its full length, by hand. */
  @Test
  void workOfAttention() {
    // q, k, v in and y out: 4 x 1024 x 768 numbers of 4 bytes, and 1024 x 12 log-sum-exps;
    // 12 x 1024 x 1025 / 2 pairs, each 2 x 64 for the score, 2 x 64 for the sum, and 5
    assertWork(
        12_582_912 + 49_152,
        6_297_600.0 * 261,
        Work.of(Shape.of(Operation.ATTENTION, 1024, 12, 64), 4, 4));
    // halves: but for the log-sum-exps
    assertEquals(
        6_291_456 + 49_152, Work.of(Shape.of(Operation.ATTENTION, 1024, 12, 64), 2, 2).bytes());
  }

  @Test
  void workOfOneRow() {
    // k and v of 3 keys, q and y: 8 x 10 numbers of 4 bytes, and 2 log-sum-exps
    assertWork(
        320 + 8, 2 * 3 * (4 * 5 + 5), Work.of(Shape.of(Operation.DECODE_ATTENTION, 3, 2, 5), 4, 4));
  }

  @Test
  void workOfMaps() {
    // q and k: 2 x 3 x 10 numbers; 3 x 2 log-sum-exps; 2 x 6 probabilities
    assertWork(240 + 24 + 48, 12 * (2 * 5 + 3), Work.of(Shape.of(Operation.MAP, 3, 2, 5), 4, 4));
    assertEquals(120 + 24 + 48, Work.of(Shape.of(Operation.MAP, 3, 2, 5), 2, 2).bytes());
  }

  @Test
  void workOfAProduct() {
    // x 3 x 5 and y 3 x 7 numbers, weight 5 x 7, bias 7; 2 x 3 x 5 x 7 and 21 for the bias
    assertWork(
        4 * (15 + 21) + 4 * 35 + 4 * 7,
        210 + 21,
        Work.of(Shape.of(Operation.LINEAR, 3, 5, 7), 4, 4));
    assertEquals(
        4 * (15 + 21) + 35 + 4 * 7, Work.of(Shape.of(Operation.LINEAR, 3, 5, 7), 4, 1).bytes());
  }

  @Test
  void workOfRows() {
    assertWork(2 * 60 + 40, 8 * 15, Work.of(Shape.of(Operation.LAYERNORM, 3, 5), 4, 4));
    assertWork(2 * 60, 5 * 15, Work.of(Shape.of(Operation.SOFTMAX, 3, 5), 4, 4));
    assertWork(2 * 60, 9 * 15, Work.of(Shape.of(Operation.GELU, 3, 5), 4, 4));
    assertEquals(9 / 8.0, Work.of(Shape.of(Operation.GELU, 3, 5), 4, 4).intensity());
  }

  @Test
  void theFirstTokenReadsItselfAlone() {
    Problem problem = of(Operation.ATTENTION, 2, 2, 3);
    float[] x = problem.x(); // [2, 3 parts, 2 heads, 3]
    for (int column = 0; column < 6; column++) {
      assertEquals(x[2 * 6 + column], problem.expected(column), 1e-12);
    }
  }

  @Test
  void theSecondTokenByHand() {
    Problem problem = of(Operation.ATTENTION, 2, 2, 3);
    float[] x = problem.x();
    int head = 1;
    double[] score = new double[2];
    for (int key = 0; key < 2; key++) {
      for (int j = 3 * head; j < 3 * head + 3; j++) {
        score[key] += x[18 + j] * (double) x[18 * key + 6 + j] * problem.scale();
      }
    }
    double p1 = 1 / (1 + Math.exp(score[0] - score[1])); // of key 1
    double y = (1 - p1) * x[12 + 4] + p1 * x[18 + 12 + 4];
    assertEquals(y, problem.expected(6 + 4), 1e-12);
    assertEquals(p1, of(Operation.MAP, 2, 2, 3).expected(4 + 2 + 1), 1e-12); // head 1, query 1
    assertEquals(y, of(Operation.DECODE_ATTENTION, 2, 2, 3).expected(4), 1e-12);
  }

  @Test
  void aProductByHand() {
    Problem problem = of(Operation.LINEAR, 2, 2, 3);
    float[] x = problem.x();
    float[] w = problem.weight();
    double y = problem.bias()[2] + x[2] * (double) w[2] + x[3] * (double) w[5];
    assertEquals(y, problem.expected(5), 1e-12); // row 1, output 2
  }

  @Test
  void rowsByHand() {
    Problem norm = of(Operation.LAYERNORM, 2, 2);
    float[] x = norm.x();
    // of two numbers: mean their middle, deviation half their distance
    double half = (x[3] - (double) x[2]) / 2;
    double expected = half / Math.sqrt(half * half + 1e-5f) * norm.weight()[1] + norm.bias()[1];
    assertEquals(expected, norm.expected(3), 1e-12);

    Problem softmax = of(Operation.SOFTMAX, 2, 2);
    x = softmax.x();
    assertEquals(1 / (1 + Math.exp(x[2] - (double) x[3])), softmax.expected(3), 1e-12);

    Problem gelu = of(Operation.GELU, 1, 1);
    double v = gelu.x()[0];
    double inner = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    double sigmoid = 1 / (1 + Math.exp(-2 * inner)); // (1 + tanh) / 2
    assertEquals(v * sigmoid, gelu.expected(0), 1e-12);
  }

  @ParameterizedTest
  @EnumSource
  void inputsAreTheSameEveryTimeAndHalvesHoldThemExactly(Operation operation) {
    Shape shape =
        operation.axes().size() == 2 ? Shape.of(operation, 3, 70) : Shape.of(operation, 3, 70, 5);
    Problem once = new Problem(shape, Precision.BF16);
    assertArrayEquals(once.x(), new Problem(shape, Precision.F16).x());
    assertNotEquals(once.x()[0], new Problem(shape, Precision.F32).x()[0]);
    for (float[] values : new float[][] {once.x(), once.weight(), once.bias()}) {
      for (float value : values) {
        assertEquals(value, Float.float16ToFloat(Float.floatToFloat16(value)));
        assertEquals(0, Float.floatToRawIntBits(value) & 0xffff); // bf16 is the upper half
      }
    }
  }

  /** Each group of 64 inputs has one weight of 127/128, so that what is 1/128 becomes 1. */
  @Test
  void int8HoldsItsWeightsExactly() {
    Problem problem = new Problem(Shape.of(Operation.LINEAR, 1, 130, 3), Precision.INT8);
    for (int n = 0; n < 3; n++) {
      for (int first = 0; first < 130; first += 64) {
        float most = 0;
        for (int k = first; k < Math.min(130, first + 64); k++) {
          float weight = problem.weight()[3 * k + n];
          assertEquals(weight * 128, Math.rint(weight * 128));
          most = Math.max(most, Math.abs(weight));
        }
        assertEquals(127 / 128f, most);
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void whatIsCheckedIsThereAndSpread(Operation operation) {
    Shape shape =
        operation.axes().size() == 2
            ? Shape.of(operation, 300, 200)
            : operation == Operation.LINEAR
                ? Shape.of(operation, 300, 7, 200)
                : Shape.of(operation, 300, 2, 100);
    Problem problem = new Problem(shape, Precision.F32);
    long[] checked = problem.checked();
    assertTrue(checked.length >= 64 && checked.length <= 48 * 64, checked.length + " outputs");
    for (int i = 1; i < checked.length; i++) {
      assertTrue(checked[i - 1] < checked[i]);
    }
    assertEquals(0, checked[0]);
    assertEquals(problem.outputs() - 1, checked[checked.length - 1]);
    if (operation == Operation.MAP) {
      assertTrue(
          Arrays.stream(checked).allMatch(i -> i % 300 <= i / 300 % 300), "above the diagonal");
    }
  }
}
