package dev.loupe.kernels;

import static dev.loupe.kernels.Comparison.F32;

import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.function.IntToDoubleFunction;

/** The families that multiply with W, and the epilogues of a product. */
final class LinearSelfTest {
  private static final CacheShape CACHE = new CacheShape(3, 2, 4, 16);

  private final Comparison c;

  LinearSelfTest(Comparison c) {
    this.c = c;
  }

  /** Makes the call of a linear map; {@code sums} are x . W^T in double. */
  private interface Prepare {
    LinearCall call(LinearMap map, DeviceBuffer x, LinearEpilogue epilogue, double[] sums);
  }

  void linear(Variant v, Element element) {
    LinearKernels kernels = new LinearKernels(c.gpu());
    for (Element x : element == F32 ? List.of(F32) : List.of(F32, element)) {
      linear(element, x, 9, (map, in, epilogue, sums) -> kernels.prepare(v, map, in, epilogue));
    }
  }

  void gemv(Variant v, Element element) {
    GemvKernels kernels = new GemvKernels(c.gpu());
    for (int rows : new int[] {1, 2, 4, 8}) { // a kernel each
      linear(element, F32, rows, (map, x, epilogue, sums) -> kernels.prepare(v, map, x, epilogue));
    }
  }

  /** The product of a library, which is there. */
  void cublas(Variant v, Element element) {
    Cublas library =
        Cublas.open(c.gpu()).orElseThrow(() -> new GpuException("cuBLAS is not there any more"));
    try (CublasLinear kernels = new CublasLinear(c.gpu(), library)) {
      linear(element, element, 9, (map, in, epilogue, sums) -> kernels.prepare(map, in, epilogue));
    }
  }

  /** As after a product by cuBLAS. */
  void epilogue(Variant v, Element element) {
    linear(
        element, element, 9, (map, x, epilogue, sums) -> epilogueAlone(v, map, x, epilogue, sums));
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

  /** All three epilogues of x . W^T + b with x [rows, 80] and 96 outputs. */
  private void linear(Element element, Element xElement, int rows, Prepare prepare) {
    int in = 80; // for int8: a group of 64 and a short one
    int outputs = 3 * CACHE.width();
    float[] x = c.floats(element == Element.I8 ? F32 : element, rows * in);
    float[] w = c.floats(element == Element.I8 ? F32 : element, outputs * in);
    float[] bias = c.floats(F32, outputs);
    float[] residual = c.floats(F32, rows * outputs);
    LinearMap map = linearMap(element, w, bias, in, outputs);
    double[] sums = new double[rows * outputs];
    for (int i = 0; i < sums.length; i++) {
      for (int k = 0; k < in; k++) {
        sums[i] += (double) x[i / outputs * in + k] * w[i % outputs * in + k];
      }
    }
    IntToDoubleFunction plain = i -> sums[i] + bias[i % outputs];
    String of = "%s of %d %s rows";
    DeviceBuffer input = c.put(xElement, x);
    for (Element to : xElement == F32 ? List.of(F32) : List.of(F32, xElement)) {
      DeviceBuffer out = c.empty(to, sums.length);
      Activation f = Activation.GELU_NEW;
      prepare.call(map, input, new LinearEpilogue.Output(out, f), sums).run(rows);
      c.compare(
          of.formatted("out", rows, xElement.suffix()), out, i -> f.of(plain.applyAsDouble(i)));
    }
    DeviceBuffer acc = c.put(F32, residual);
    prepare.call(map, input, new LinearEpilogue.Residual(acc), sums).run(rows);
    c.compare(
        of.formatted("acc", rows, xElement.suffix()),
        acc,
        i -> residual[i] + plain.applyAsDouble(i));
    append(xElement, rows, plain, epilogue -> prepare.call(map, input, epilogue, sums));
  }

  private void append(
      Element element,
      int rows,
      IntToDoubleFunction plain,
      Function<LinearEpilogue, LinearCall> prepare) {
    int d = CACHE.headSize();
    int outputs = 3 * CACHE.width();
    DeviceBuffer qkv = c.empty(element, (long) rows * outputs);
    DeviceBuffer[] kv = {c.empty(element, CACHE.elements()), c.empty(element, CACHE.elements())};
    int[] sequence = new int[rows];
    int[] position = new int[rows];
    Arrays.setAll(sequence, r -> r % 3);
    Arrays.setAll(position, r -> 3 - r / 3);
    prepare
        .apply(
            new LinearEpilogue.QkvAppend(
                qkv, kv[0], kv[1], c.put(sequence), c.put(position), CACHE))
        .run(rows);
    String of = "%s of %d %s rows";
    c.compare(of.formatted("qkv", rows, element.suffix()), qkv, plain);
    for (int part = 1; part <= 2; part++) {
      int column = part * CACHE.width();
      c.compare(
          of.formatted(part == 1 ? "keys" : "values", rows, element.suffix()),
          kv[part - 1],
          i -> { // [sequence, head, position, D]; NaN where no row went
            int row = i / d / 4 / 2 + (3 - i / d % 4) * 3;
            int at = row * outputs + column + i / d / 4 % 2 * d + i % d;
            return row < rows ? plain.applyAsDouble(at) : Double.NaN;
          });
    }
  }

  /** For int8, {@code w} becomes what the bytes stand for. */
  private LinearMap linearMap(Element element, float[] w, float[] bias, int in, int outputs) {
    DeviceBuffer b = c.put(F32, bias);
    if (element != Element.I8) {
      return new LinearMap(c.put(element, w), null, b, in, outputs);
    }
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    for (int i = 0; i < w.length; i++) {
      w[i] = q.value(i / in, i % in) * q.scale(i / in, i % in);
    }
    return c.own(q.upload(c.gpu(), b));
  }
}
