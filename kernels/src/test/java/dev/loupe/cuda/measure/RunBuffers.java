package dev.loupe.cuda.measure;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.function.Consumer;

/** Device memory that launches use, all freed together. */
abstract class RunBuffers implements AutoCloseable {
  private static final int RANDOM_VALUES = 65_521; // repeated where a buffer holds more; a prime

  final Gpu gpu;
  final Random random = new Random(1);
  private final List<Runnable> open = new ArrayList<>();
  private float[] values = {};

  RunBuffers(Gpu gpu) {
    this.gpu = gpu;
  }

  DeviceBuffer floats(Element element, int... shape) {
    if (values.length == 0) {
      values = new float[RANDOM_VALUES];
      for (int i = 0; i < values.length; i++) {
        values[i] = (float) random.nextGaussian();
      }
    }
    float[] all = new float[elements(shape)];
    for (int at = 0; at < all.length; at += values.length) {
      System.arraycopy(values, 0, all, at, Math.min(values.length, all.length - at));
    }
    return upload(element, all);
  }

  DeviceBuffer upload(Element element, float[] all) {
    DeviceBuffer buffer = empty(element, all.length);
    buffer.upload(all);
    return buffer;
  }

  DeviceBuffer ints(int... all) {
    DeviceBuffer buffer = empty(Element.I32, all.length);
    buffer.upload(all);
    return buffer;
  }

  DeviceBuffer empty(Element element, int... shape) {
    return keep(gpu.allocate(element, elements(shape)), DeviceBuffer::close);
  }

  private static int elements(int... shape) {
    return Arrays.stream(shape).reduce(1, Math::multiplyExact);
  }

  <T> T keep(T resource, Consumer<T> close) {
    open.add(() -> close.accept(resource));
    return resource;
  }

  @Override
  public void close() {
    open.reversed().forEach(Runnable::run);
    open.clear();
  }
}
