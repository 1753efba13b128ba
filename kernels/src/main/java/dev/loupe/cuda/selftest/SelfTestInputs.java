package dev.loupe.cuda.selftest;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.kernels.LinearMap;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.OptionalLong;
import java.util.Random;
import java.util.function.IntToDoubleFunction;

/** Inputs of a {@link SelfTest} on the GPU, and what came of comparing its results. */
final class SelfTestInputs implements AutoCloseable {
  /** Beside each buffer: enough for some rows before it, and for a tile of them behind it. */
  private static final int BEFORE = 1 << 12;

  private static final int BEHIND = 1 << 17;
  private static final byte POISON = (byte) 0xff; // NaN, or -1
  private static final byte OTHER_POISON = (byte) 0xfe; // what a kernel makes of NaN is not this

  static final Element F32 = Element.F32;
  static final List<Element> FLOATS = List.of(F32, Element.F16, Element.BF16);

  private final Gpu gpu;
  private final Random random = new Random(20_26);
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private final IdentityHashMap<DeviceBuffer, Beside> beside = new IdentityHashMap<>();
  private boolean tight;
  private String variant = "";
  private int results;
  private int wrong;
  private String firstWrong = "";
  private double worst;

  SelfTestInputs(Gpu gpu) {
    this.gpu = gpu;
  }

  Gpu gpu() {
    return gpu;
  }

  /** A test of a variant in an element. */
  interface Case {
    void run(Variant variant, Element element);
  }

  /** Tests what the card supports of a family. */
  void each(String family, Case test) {
    for (Variant v : KernelCatalogue.of(family)) {
      for (Element element : Element.values()) {
        if (v.supports(element, gpu.computeCapability())) {
          one(v, element, test);
        }
      }
    }
  }

  /** Tests a variant in the place of the others of its family. */
  void one(Variant v, Element element, Case test) {
    KernelChoice before = gpu.choice();
    gpu.use(KernelChoice.preferring(v));
    try {
      variant = v.name() + " " + element.suffix();
      test.run(v, element);
      free();
    } finally {
      gpu.use(before);
    }
  }

  SelfTest.Finding finding(String family) {
    String text =
        wrong == 0
            ? "ok: %d results, worst error %.0f%% of what is allowed"
                .formatted(results, 100 * worst)
            : "WRONG: %d of %d results, the first: %s".formatted(wrong, results, firstWrong);
    return new SelfTest.Finding(family, results, wrong, text);
  }

  /** Random values within 1; the short elements hold them exactly. */
  float[] floats(Element element, int n) {
    float[] values = new float[n];
    for (int i = 0; i < n; i++) {
      values[i] = element == F32 ? random.nextFloat(-1, 1) : random.nextInt(-127, 128) / 128f;
    }
    return values;
  }

  static float nearest(Element element, float x) {
    return switch (element) {
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(x));
      case BF16 -> Element.fromBf16(Element.toBf16(x));
      default -> x;
    };
  }

  /** The memory that a buffer is the middle of, and each byte of the rest. */
  private record Beside(DeviceBuffer allocation, byte value) {}

  /** Poisoned, so that what no kernel writes is seen; so is memory before and behind it. */
  DeviceBuffer empty(Element element, long n) {
    DeviceBuffer buffer = inTheMiddle(element, n, OTHER_POISON);
    buffer.fill(POISON);
    return buffer;
  }

  private DeviceBuffer inTheMiddle(Element element, long n, byte around) {
    long before = BEFORE / element.bytes();
    DeviceBuffer allocation = gpu.allocate(element, before + n + BEHIND / element.bytes());
    buffers.add(allocation);
    allocation.fill(around);
    DeviceBuffer buffer = allocation.slice(before, n);
    beside.put(buffer, new Beside(allocation, around));
    return buffer;
  }

  /** Where something beside the buffer has been written, in elements from its start. */
  private OptionalLong writtenOutside(DeviceBuffer buffer) {
    Beside around = beside.get(buffer);
    if (around == null) {
      return OptionalLong.empty(); // it has nothing beside it, or own() took it over
    }
    int size = buffer.element().bytes();
    int before = BEFORE / size;
    for (long from : new long[] {0, before + buffer.elements()}) {
      byte[] bytes = new byte[from == 0 ? BEFORE : BEHIND];
      around.allocation().slice(from, bytes.length / size).download(MemorySegment.ofArray(bytes));
      for (int i = 0; i < bytes.length; i++) {
        if (bytes[i] != around.value()) {
          return OptionalLong.of(from - before + i / size);
        }
      }
    }
    return OptionalLong.empty();
  }

  /**
   * Lets what is put from now on end where its memory ends, so that a kernel that reads on does
   * what is forbidden; or lets NaN follow it, so that this shows in results.
   */
  void endWithMemory(boolean tight) {
    this.tight = tight;
  }

  private DeviceBuffer emptyInput(Element element, int n) {
    if (!tight) {
      return inTheMiddle(element, n, POISON);
    }
    DeviceBuffer buffer = gpu.allocate(element, n);
    buffers.add(buffer);
    return buffer;
  }

  DeviceBuffer put(Element element, float[] values) {
    DeviceBuffer buffer = emptyInput(element, values.length);
    buffer.upload(values);
    return buffer;
  }

  DeviceBuffer put(int... values) {
    DeviceBuffer buffer = emptyInput(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  /** True if a result was wrong. */
  boolean isWrong() {
    return wrong > 0;
  }

  private static double[] values(DeviceBuffer buffer) {
    double[] values = new double[Math.toIntExact(buffer.elements())];
    switch (buffer.element()) {
      case F32, F16, BF16 -> {
        float[] floats = new float[values.length];
        buffer.download(floats);
        Arrays.setAll(values, i -> floats[i]);
      }
      case I32 -> {
        int[] ints = new int[values.length];
        buffer.download(ints);
        Arrays.setAll(values, i -> ints[i]);
      }
      case I8 -> {
        byte[] bytes = new byte[values.length];
        buffer.download(MemorySegment.ofArray(bytes));
        Arrays.setAll(values, i -> bytes[i]);
      }
    }
    return values;
  }

  /**
   * Sums of up to some hundred terms in f32, then a rounding or two to the element. A product in
   * tf32 or f16 where f32 was due is further off.
   */
  private static double tolerance(Element element) {
    return switch (element) {
      case F32 -> 1e-4;
      case F16 -> 2e-3;
      case BF16 -> 1.6e-2;
      case I8, I32 -> 0;
    };
  }

  void compare(String what, DeviceBuffer buffer, IntToDoubleFunction expected) {
    compare(what, buffer, tolerance(buffer.element()), expected);
  }

  /**
   * Each element may be off by {@code tolerance} times 1 + its magnitude; a NaN is a NaN. What lies
   * beside the buffer must be as it was.
   */
  void compare(String what, DeviceBuffer buffer, double tolerance, IntToDoubleFunction expected) {
    results++;
    OptionalLong outside = writtenOutside(buffer);
    if (outside.isPresent()) {
      wrong("%s[%d] is written, of %d".formatted(what, outside.getAsLong(), buffer.elements()));
      return;
    }
    double[] actual = values(buffer);
    for (int i = 0; i < actual.length; i++) {
      double right = expected.applyAsDouble(i);
      if (actual[i] == right || (Double.isNaN(actual[i]) && Double.isNaN(right))) {
        continue; // infinities, too
      }
      double error = Math.abs(actual[i] - right);
      double share = error / (tolerance * (1 + Math.abs(right)));
      if (!(share <= 1)) {
        wrong(
            "%s[%d] is %s"
                .formatted(
                    what, i, String.format(Locale.ROOT, "%.9g, not %.9g", actual[i], right)));
        return;
      }
      worst = Math.max(worst, share);
    }
  }

  private void wrong(String text) {
    firstWrong = wrong++ == 0 ? variant + ": " + text : firstWrong;
  }

  /** Exactly these. */
  void compare(String what, DeviceBuffer buffer, int... expected) {
    compare(what, buffer, 0, i -> expected[i]);
  }

  /** The same bits as another buffer of the element, F32. */
  void compareBits(String what, DeviceBuffer buffer, DeviceBuffer expected) {
    float[] values = new float[Math.toIntExact(expected.elements())];
    expected.download(values);
    compare(what, buffer, 0, i -> values[i]);
  }

  /** Takes over the buffers of a map. */
  LinearMap own(LinearMap map) {
    buffers.add(map.weight());
    DeviceBuffer scales = map.scales();
    if (scales != null) {
      buffers.add(scales);
    }
    return map;
  }

  private void free() {
    buffers.forEach(DeviceBuffer::close);
    buffers.clear();
    beside.clear();
  }

  /** Frees what was allocated. */
  @Override
  public void close() {
    free();
  }
}
