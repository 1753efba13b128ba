package dev.loupe.cuda.selftest;

import static dev.loupe.cuda.selftest.SelfTestInputs.F32;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.LinearArguments;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import java.util.Arrays;
import java.util.List;
import java.util.function.IntToDoubleFunction;
import org.jspecify.annotations.Nullable;

/** The families that multiply with W, and the epilogues of a product. */
final class LinearSelfTest {
  private static final int HEADS = 3;
  private static final int SEQUENCES = 3;

  /** Rows of a result behind those that are asked for. */
  private static final int MORE_ROWS = 3;

  private final SelfTestInputs c;

  LinearSelfTest(SelfTestInputs c) {
    this.c = c;
  }

  /** Makes the call of a linear map; {@code sums} are x . W^T in double. */
  private interface Prepare {
    LinearCall call(LinearMap map, DeviceBuffer x, LinearEpilogue epilogue, double[] sums);
  }

  /**
   * A shape.
   *
   * @param headSize of q, k and v, which are the outputs; 0 for outputs that are not
   * @param outputs as many, or 3 heads' q, k and v
   */
  private record Shape(int rows, int in, int headSize, int outputs) {
    static Shape ofHeads(int rows, int in, int headSize) {
      return new Shape(rows, in, headSize, 3 * HEADS * headSize);
    }

    /** Of outputs that are no multiple of anything. */
    static Shape odd(int rows, int in) {
      return new Shape(rows, in, 0, 29);
    }

    /** The cache has room for all rows and, between them, for others. */
    CacheShape cache() {
      return new CacheShape(SEQUENCES, HEADS, Math.ceilDiv(rows, SEQUENCES) + 2, headSize);
    }
  }

  void linear(Variant v, Element element) {
    LinearKernels kernels = new LinearKernels(c.gpu());
    for (Element x : element == F32 ? List.of(F32) : List.of(F32, element)) {
      // more than a tile of rows and of outputs, three of k, and none full
      for (Shape shape :
          List.of(Shape.ofHeads(133, 152, 8), Shape.ofHeads(9, 80, 16), Shape.odd(5, 37))) {
        if (kernels.reason(v, element, shape.in()).isEmpty()) {
          linear(
              element,
              x,
              shape,
              (map, in, epilogue, sums) -> kernels.prepare(v, map, in, epilogue));
        }
      }
    }
  }

  void gemv(Variant v, Element element) {
    GemvKernels kernels = new GemvKernels(c.gpu());
    for (int rows : new int[] {1, 2, 4, 8}) { // a kernel each
      // more of x than shared memory takes at once; for int8 the last group is short
      int in = 8192 / rows + 80;
      int some = rows < 4 ? rows : rows - 1;
      Prepare all = (map, x, epilogue, sums) -> kernels.prepare(v, map, x, epilogue);
      Prepare inTurns = (map, x, epilogue, sums) -> kernels.prepare(v, map, x, null, epilogue, 3);
      linear(element, F32, Shape.ofHeads(some, in, 8), all);
      linear(element, F32, Shape.odd(rows, 80), inTurns);
      if (GemvKernels.takesNorm(v, in)) {
        normalised(kernels, v, element, Shape.ofHeads(some, in, 8), Integer.MAX_VALUE);
        normalised(kernels, v, element, Shape.odd(rows, 1072), 3);
      }
    }
  }

  /** x . W^T of rows that are normalised on the way. */
  private void normalised(
      GemvKernels kernels, Variant v, Element element, Shape shape, int mostBlocks) {
    Norm norm = new Norm(c.floats(F32, shape.in()), c.floats(F32, shape.in()));
    GemvKernels.InputNorm input =
        new GemvKernels.InputNorm(c.put(F32, norm.gamma), c.put(F32, norm.beta), Norm.EPS);
    linear(
        element,
        F32,
        shape,
        norm,
        (map, x, epilogue, sums) -> kernels.prepare(v, map, x, input, epilogue, mostBlocks));
  }

  /** By what rows are normalised. */
  private static final class Norm {
    static final float EPS = 1e-5f;

    final float[] gamma;
    final float[] beta;

    Norm(float[] gamma, float[] beta) {
      this.gamma = gamma;
      this.beta = beta;
    }

    /** The rows of x, normalised. */
    double[] of(float[] x) {
      int in = gamma.length;
      double[] y = new double[x.length];
      for (int row = 0; row < x.length; row += in) {
        double mean = 0;
        for (int k = 0; k < in; k++) {
          mean += x[row + k] / (double) in;
        }
        double variance = EPS;
        for (int k = 0; k < in; k++) {
          variance += Math.pow(x[row + k] - mean, 2) / in;
        }
        for (int k = 0; k < in; k++) {
          y[row + k] = (x[row + k] - mean) / Math.sqrt(variance) * gamma[k] + beta[k];
        }
      }
      return y;
    }
  }

  /** The product of a library, which is there. */
  void cublas(Variant v, Element element) {
    Cublas library =
        Cublas.open(c.gpu()).orElseThrow(() -> new GpuException("cuBLAS is not there any more"));
    try (CublasLinear kernels = new CublasLinear(c.gpu(), library)) {
      linear(
          element,
          element,
          Shape.ofHeads(133, 152, 8),
          (map, in, epilogue, sums) -> kernels.prepare(map, in, epilogue));
    }
  }

  /** As after a product by cuBLAS. */
  void epilogue(Variant v, Element element) {
    for (Shape shape : List.of(Shape.ofHeads(9, 80, 16), Shape.odd(133, 37))) {
      linear(
          element,
          element,
          shape,
          (map, x, epilogue, sums) -> epilogueAlone(v, map, x, epilogue, sums));
    }
  }

  private LinearCall epilogueAlone(
      Variant v, LinearMap map, DeviceBuffer x, LinearEpilogue epilogue, double[] sums) {
    LinearArguments arguments =
        new LinearArguments(new BufferCheck("epilogue", c.gpu()), map, x, epilogue);
    Launch launch = CublasLinear.epilogue(v, arguments);
    float[] product = new float[sums.length];
    for (int i = 0; i < sums.length; i++) {
      product[i] = (float) sums[i];
    }
    launch.set(0, c.put(F32, product));
    return rows -> CublasLinear.finish(v, launch, rows, map.outputs());
  }

  private void linear(Element element, Element xElement, Shape shape, Prepare prepare) {
    linear(element, xElement, shape, null, prepare);
  }

  /** All epilogues of x . W^T + b, x perhaps normalised; odd shapes have no b. */
  private void linear(
      Element element, Element xElement, Shape shape, @Nullable Norm norm, Prepare prepare) {
    int rows = shape.rows();
    int in = shape.in();
    int outputs = shape.outputs();
    boolean odd = shape.headSize() == 0;
    c.endWithMemory(odd);
    float[] x = c.floats(element == Element.I8 ? F32 : element, rows * in);
    float[] w = c.floats(element == Element.I8 ? F32 : element, outputs * in);
    float[] bias = odd ? new float[outputs] : c.floats(F32, outputs);
    LinearMap map = linearMap(element, w, odd ? null : c.put(F32, bias), in, outputs);
    double[] multiplied = new double[x.length];
    Arrays.setAll(multiplied, i -> x[i]);
    if (norm != null) {
      multiplied = norm.of(x);
    }
    double[] sums = new double[rows * outputs];
    for (int i = 0; i < sums.length; i++) {
      int row = i / outputs * in;
      int output = i % outputs * in;
      for (int k = 0; k < in; k++) {
        sums[i] += multiplied[row + k] * w[output + k];
      }
    }
    IntToDoubleFunction plain = i -> sums[i] + bias[i % outputs];
    String of =
        "%%s of %d %s %srows of %d"
            .formatted(rows, xElement.suffix(), norm == null ? "" : "normalised ", in);
    DeviceBuffer input = c.put(xElement, x);
    for (Element to : xElement == F32 ? List.of(F32) : List.of(F32, xElement)) {
      DeviceBuffer out = c.empty(to, (long) (rows + MORE_ROWS) * outputs);
      KernelActivation f = odd ? KernelActivation.NONE : KernelActivation.GELU_NEW;
      prepare.call(map, input, new LinearEpilogue.Output(out, f), sums).run(rows);
      c.compare(
          of.formatted("out"),
          out,
          i -> i < sums.length ? f.of(plain.applyAsDouble(i)) : Double.NaN);
    }
    if (norm == null) {
      float[] residual = c.floats(F32, (rows + MORE_ROWS) * outputs);
      DeviceBuffer acc = c.put(F32, residual);
      prepare.call(map, input, new LinearEpilogue.Residual(acc), sums).run(rows);
      c.compare(
          of.formatted("acc"),
          acc,
          i -> residual[i] + (i < sums.length ? plain.applyAsDouble(i) : 0));
    }
    if (!odd) {
      append(xElement, shape, of, plain, epilogue -> prepare.call(map, input, epilogue, sums));
    }
  }

  /** Makes the call of an epilogue. */
  private interface Append {
    LinearCall call(LinearEpilogue epilogue);
  }

  /**
   * Rows go to the sequences in turns, from their ends on; the last ones to a sequence and to a
   * position that the cache does not have.
   */
  private void append(
      Element element, Shape shape, String of, IntToDoubleFunction plain, Append prepare) {
    CacheShape cache = shape.cache();
    int rows = shape.rows();
    int outputs = shape.outputs();
    int d = shape.headSize();
    DeviceBuffer qkv = c.empty(element, (long) (rows + MORE_ROWS) * outputs);
    DeviceBuffer[] kv = {c.empty(element, cache.elements()), c.empty(element, cache.elements())};
    int[] sequence = new int[rows];
    int[] position = new int[rows];
    Arrays.setAll(sequence, r -> r % SEQUENCES);
    Arrays.setAll(position, r -> cache.capacity() - 1 - r / SEQUENCES);
    if (rows > 2) {
      sequence[rows - 1] = SEQUENCES;
      position[rows - 2] = cache.capacity();
    }
    prepare
        .call(
            new LinearEpilogue.QkvAppend(
                qkv, kv[0], kv[1], c.put(sequence), c.put(position), cache))
        .run(rows);
    c.compare(
        of.formatted("qkv"), qkv, i -> i < rows * outputs ? plain.applyAsDouble(i) : Double.NaN);
    int[] rowAt = new int[SEQUENCES * cache.capacity()];
    Arrays.fill(rowAt, -1);
    for (int r = 0; r < rows; r++) {
      if (sequence[r] < SEQUENCES && position[r] < cache.capacity()) {
        rowAt[sequence[r] * cache.capacity() + position[r]] = r;
      }
    }
    for (int part = 1; part <= 2; part++) {
      int column = part * cache.width();
      c.compare(
          of.formatted(part == 1 ? "keys" : "values"),
          kv[part - 1],
          i -> { // [sequence, head, position, D]; NaN where no row went
            int at = i / d;
            int head = at / cache.capacity() % HEADS;
            int row =
                rowAt[at / cache.capacity() / HEADS * cache.capacity() + at % cache.capacity()];
            return row < 0
                ? Double.NaN
                : plain.applyAsDouble(row * outputs + column + head * d + i % d);
          });
    }
  }

  /** For int8, {@code w} becomes what the bytes stand for. */
  private LinearMap linearMap(
      Element element, float[] w, @Nullable DeviceBuffer bias, int in, int outputs) {
    if (element != Element.I8) {
      return new LinearMap(c.put(element, w), null, bias, in, outputs);
    }
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    for (int i = 0; i < w.length; i++) {
      w[i] = q.value(i / in, i % in) * q.scale(i / in, i % in);
    }
    return c.own(q.upload(c.gpu(), bias));
  }
}
