package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Assertions;

/** A linear problem on the device; every buffer that kernels write starts as NaN. */
public final class LinearBuffers implements AutoCloseable {
  public final LinearProblem problem;
  final Gpu gpu;
  public final DeviceBuffer x;
  public final LinearMap map;
  private final List<DeviceBuffer> buffers = new ArrayList<>();

  public LinearBuffers(Gpu gpu, LinearProblem problem, boolean withBias) {
    this(gpu, problem, withBias, null);
  }

  /** With the weights of {@code int8} instead of the problem's, if given. */
  public LinearBuffers(
      Gpu gpu, LinearProblem problem, boolean withBias, @Nullable Int8Weights int8) {
    this.gpu = gpu;
    this.problem = problem;
    this.x = with(problem.xElement, problem.x);
    DeviceBuffer bias = withBias ? with(Element.F32, problem.bias) : null;
    if (int8 == null) {
      DeviceBuffer w = with(problem.weightElement, problem.w);
      this.map = new LinearMap(w, null, bias, problem.in, problem.outputs);
    } else {
      this.map = int8.upload(gpu, bias);
      buffers.add(map.weight());
      buffers.add(map.scales());
    }
  }

  public DeviceBuffer with(Element element, float... values) {
    DeviceBuffer buffer = empty(element, values.length);
    buffer.upload(values);
    return buffer;
  }

  public DeviceBuffer with(int... values) {
    DeviceBuffer buffer = empty(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  DeviceBuffer empty(Element element, long elements) {
    DeviceBuffer buffer = gpu.allocate(element, elements);
    buffers.add(buffer);
    buffer.fill((byte) 0xff);
    return buffer;
  }

  /** Room for the result, and the spare rows. */
  public DeviceBuffer target(Element element) {
    return empty(element, (long) (problem.rows + LinearProblem.SPARE) * problem.outputs);
  }

  /** The rows of the result; the spare rows must be as they were. */
  public float[] result(DeviceBuffer target) {
    float[] all = new float[(int) target.elements()];
    target.download(all);
    int n = problem.rows * problem.outputs;
    for (int i = n; i < all.length; i++) {
      Assertions.assertTrue(Float.isNaN(all[i]), "written beyond the last row: " + problem);
    }
    return Arrays.copyOf(all, n);
  }

  @Override
  public void close() {
    buffers.forEach(DeviceBuffer::close);
  }
}
