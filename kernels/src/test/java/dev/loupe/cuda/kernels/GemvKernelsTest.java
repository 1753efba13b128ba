package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Close;
import dev.loupe.cuda.emulator.Emulated;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Schedules;
import dev.loupe.cuda.kernels.LinearEpilogue.Output;
import dev.loupe.cuda.kernels.LinearEpilogue.QkvAppend;
import dev.loupe.cuda.kernels.LinearEpilogue.Residual;
import dev.loupe.cuda.kernels.LinearProblem.Expected;
import java.util.Arrays;
import java.util.List;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

@OnDevice
@ParameterizedClass
@MethodSource("variants")
class GemvKernelsTest {
  private static final Element F32 = Element.F32;
  private static final int SEED = 20_261;

  private static Gpu gpu;
  private static GemvKernels gemv;
  private static Variant variant = GemvKernels.VARIANTS.getFirst();

  static List<Variant> variants() {
    return GemvKernels.VARIANTS;
  }

  @Parameter Variant tested = variant;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    gemv = new GemvKernels(gpu);
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @BeforeEach
  void forward() {
    variant = tested;
    Emulator.options(Emulator.Schedule.FORWARD, SEED, false);
  }

  @AfterEach
  void everyBufferIsClosed() {
    assertEquals(List.of(), gpu.liveBuffers());
  }

  /** A problem and its buffers; for I8 the problem's weights are what the bytes stand for. */
  private static LinearBuffers buffers(Element element, int rows, int in, int outputs) {
    Element exact = element == Element.I8 ? F32 : element;
    LinearProblem p = new LinearProblem(exact, F32, rows, in, outputs, SEED + in);
    if (element != Element.I8) {
      return new LinearBuffers(gpu, p, true);
    }
    Int8Weights q = Int8Weights.quantise(p.w, in, outputs);
    for (int i = 0; i < p.w.length; i++) {
      p.w[i] = q.value(i / in, i % in) * q.scale(i / in, i % in);
    }
    return new LinearBuffers(gpu, p, true, q);
  }

  private static float[] output(LinearBuffers b, int mostBlocks) {
    DeviceBuffer target = b.target(F32);
    gemv.prepare(variant, b.map, b.x, null, new Output(target, KernelActivation.NONE), mostBlocks)
        .run(b.problem.rows);
    return b.result(target);
  }

  private static void check(LinearBuffers b, float[] actual, UnaryOperator<Expected> epilogue) {
    LinearProblem p = b.problem;
    double[] expected = new double[actual.length];
    double[] error = new double[actual.length];
    for (int i = 0; i < actual.length; i++) {
      Expected e = epilogue.apply(p.expected(i / p.outputs, i % p.outputs, true, F32, false));
      expected[i] = e.value();
      error[i] = e.error();
    }
    Close.check(
        "gemv %s %s, %s".formatted(variant.name(), b.map.weight().element(), p),
        expected,
        actual,
        error);
  }

  /** in: under a load, around a chunk of 512, a short last group of int8. */
  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void equalsTheReference(Element element) {
    int[][] shapes = {{16, 1}, {64, 5}, {512, 8}, {528, 9}, {1040, 33}};
    for (int[] s : shapes) {
      for (int rows : new int[] {1, 2, 3, 4, 8}) {
        try (LinearBuffers b = buffers(element, rows, s[0], s[1])) {
          check(b, output(b, Integer.MAX_VALUE), sum -> sum);
        }
      }
    }
  }

  @Test
  void rowsThatAreNoMultiplesOf16BytesTakeThePlainOne() {
    for (Element element : new Element[] {F32, Element.F16, Element.BF16, Element.I8}) {
      try (LinearBuffers b = buffers(element, 3, 67, 130);
          LinearBuffers even = buffers(element, 3, 64, 130)) {
        assertEquals("v0", gemv.variantFor(b.map, 3).orElseThrow().name());
        assertEquals("v1", gemv.variantFor(even.map, 3).orElseThrow().name());
        if (variant.isPlain()) {
          check(b, output(b, 1), sum -> sum);
        }
      }
    }
  }

  /** More chunks than are in shared memory at a time, for every number of rows. */
  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void bitsDependOnTheRowAlone(Element element) {
    try (LinearBuffers b = buffers(element, 8, 8720, 19)) {
      float[] eight = output(b, Integer.MAX_VALUE);
      check(b, eight, sum -> sum);
      for (int blocks : new int[] {1, 2}) {
        assertArrayEquals(eight, output(b, blocks), blocks + " blocks");
      }
      for (int rows : new int[] {1, 2, 3, 5}) {
        DeviceBuffer target = b.target(F32);
        DeviceBuffer last = b.x.slice((8L - rows) * b.problem.in, (long) rows * b.problem.in);
        gemv.prepare(variant, b.map, last, null, new Output(target, KernelActivation.NONE), 3)
            .run(rows);
        float[] some = new float[rows * b.problem.outputs];
        target.download(some);
        float[] same = Arrays.copyOfRange(eight, eight.length - some.length, eight.length);
        assertArrayEquals(same, some, rows + " rows");
      }
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void bitsDependNotOnTheSchedule(Element element) {
    for (int rows : new int[] {1, 6}) {
      try (LinearBuffers b = buffers(element, rows, 4624, 11)) {
        float[] forward = output(b, 1);
        Emulator.options(Emulator.Schedule.REVERSE, SEED, true);
        assertArrayEquals(forward, output(b, 1), "reverse");
        for (int seed = 1; seed <= 2; seed++) {
          Emulator.options(Emulator.Schedule.RANDOM, seed, false);
          assertArrayEquals(forward, output(b, 1), "random, seed " + seed);
        }
        forward();
      }
    }
  }

  /**
   * By two launches and by one, whatever the grid; 640 x 8 rows are more than are staged at once.
   */
  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void normalisingOnTheWayGivesTheSameBits(Element element) {
    Assumptions.assumeFalse(variant.isPlain());
    for (int[] s : new int[][] {{1, 16}, {1, 768}, {2, 4624}, {3, 1040}, {8, 640}, {8, 1104}}) {
      int rows = s[0];
      int in = s[1];
      try (LinearBuffers b = buffers(element, rows, in, 21)) {
        float[] gamma = new float[in];
        float[] beta = new float[in];
        for (int k = 0; k < in; k++) {
          gamma[k] = 1 + (float) Math.sin(k);
          beta[k] = (float) Math.cos(3 * k);
        }
        GemvKernels.InputNorm norm =
            new GemvKernels.InputNorm(b.with(F32, gamma), b.with(F32, beta), 1e-5f);
        DeviceBuffer normed = b.empty(F32, (long) rows * in);
        Variant v3 = LayerNormKernels.VARIANTS.getLast();
        new LayerNormKernels(gpu)
            .normalize(v3, b.x, norm.gamma(), norm.beta(), normed, rows, in, norm.eps());
        DeviceBuffer target = b.target(F32);
        gemv.prepare(variant, b.map, normed, new Output(target, KernelActivation.GELU_NEW))
            .run(rows);
        float[] apart = b.result(target);
        for (int mostBlocks : new int[] {1, 3, 1000}) {
          for (Runnable schedule : Schedules.others()) {
            schedule.run();
            DeviceBuffer together = b.target(F32);
            gemv.prepare(
                    variant,
                    b.map,
                    b.x,
                    norm,
                    new Output(together, KernelActivation.GELU_NEW),
                    mostBlocks)
                .run(rows);
            assertArrayEquals(apart, b.result(together), rows + " rows of " + in);
          }
        }
        forward();
      }
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void activatesAndAdds(Element element) {
    for (int rows : new int[] {1, 2, 3, 7}) { // a kernel each
      try (LinearBuffers b = buffers(element, rows, 48, 13)) {
        for (KernelActivation f : KernelActivation.values()) {
          DeviceBuffer target = b.target(F32);
          gemv.prepare(variant, b.map, b.x, new Output(target, f)).run(rows);
          check(b, b.result(target), sum -> sum.activated(f));
        }
        DeviceBuffer acc = b.target(F32);
        float[] stream = new float[rows * 13];
        Arrays.fill(stream, 0.75f);
        acc.upload(stream);
        gemv.prepare(variant, b.map, b.x, new Residual(acc)).run(rows);
        check(b, b.result(acc), sum -> sum.plus(0.75));
      }
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void appendsKeysAndValues(Element element) {
    for (int rows : new int[] {1, 2, 3, LinearKernelsTest.sequence().length}) { // a kernel each
      for (Element cache : List.of(F32, Element.F16, Element.BF16)) {
        appendsKeysAndValues(element, rows, cache);
      }
    }
  }

  private static void appendsKeysAndValues(Element element, int rows, Element cache) {
    CacheShape shape = LinearKernelsTest.CACHE;
    try (LinearBuffers b = buffers(element, rows, shape.width(), 3 * shape.width())) {
      DeviceBuffer keys = b.empty(cache, shape.elements());
      DeviceBuffer values = b.empty(cache, shape.elements());
      DeviceBuffer target = b.target(F32);
      DeviceBuffer sequence = b.with(LinearKernelsTest.sequence());
      DeviceBuffer position = b.with(LinearKernelsTest.position());
      QkvAppend append = new QkvAppend(target, keys, values, sequence, position, shape);
      gemv.prepare(variant, b.map, b.x, append).run(rows);
      float[] qkv = b.result(target);
      check(b, qkv, sum -> sum);
      for (int part = 1; part <= 2; part++) {
        float[] actual = new float[(int) shape.elements()];
        (part == 1 ? keys : values).download(actual);
        assertArrayEquals(LinearKernelsTest.cached(qkv, part, cache), actual);
      }
    }
  }

  @OnDevice(emulated = true)
  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16", "I8"})
  void sharedMemoryHasNoBankConflicts(Element element) {
    for (int rows : new int[] {1, 2, 4, 8}) {
      try (LinearBuffers b = buffers(element, rows, 1040, 9)) {
        Emulated.resetStatistics();
        output(b, 1);
        assertEquals(0, Emulated.bankConflicts(), rows + " rows");
      }
    }
  }

  @Test
  void refusesNormsThatItDoesNotMake() {
    Assumptions.assumeFalse(variant.isPlain());
    try (LinearBuffers b = buffers(F32, 1, 16, 3)) {
      DeviceBuffer out = b.target(F32);
      Output output = new Output(out, KernelActivation.NONE);
      GemvKernels.InputNorm none = new GemvKernels.InputNorm(b.empty(F32, 16), b.empty(F32, 16), 0);
      refused(
          "gemv v1: eps is 0.0, not more than 0",
          () -> gemv.prepare(variant, b.map, b.x, none, output));
      GemvKernels.InputNorm norm =
          new GemvKernels.InputNorm(b.empty(F32, 16), b.empty(F32, 16), 1e-5f);
      refused(
          "gemv v1: no kernel adds the product of normalised rows to a residual",
          () -> gemv.prepare(variant, b.map, b.x, norm, new Residual(out)));
      GemvKernels.InputNorm few =
          new GemvKernels.InputNorm(b.empty(F32, 16), b.empty(F32, 15), 1e-5f);
      refused(
          "gemv v1: beta has 15 elements, needs 16",
          () -> gemv.prepare(variant, b.map, b.x, few, output));
    }
  }

  @Test
  void refusesWithASentence() {
    try (LinearBuffers b = buffers(Element.F16, 2, 12, 3);
        LinearBuffers c = buffers(F32, 12, 12, 3)) {
      Output out = new Output(c.target(F32), KernelActivation.NONE);
      refused(
          "gemv v1: in is 12, not a multiple of 8, so rows of W are not multiples of 16 bytes;"
              + " use v0",
          () -> gemv.prepare(GemvKernels.VARIANTS.getLast(), b.map, b.x, out));
      refused(
          "gemv: linear v1 is not a variant of gemv",
          () -> gemv.prepare(LinearKernels.VARIANTS.getFirst(), c.map, c.x, out));
      String of = "gemv " + variant.name();
      refused(
          of + ": x holds F16, not F32",
          () -> gemv.prepare(variant, c.map, c.empty(Element.F16, 12), out));
      GemvKernels.InputNorm norm =
          new GemvKernels.InputNorm(c.empty(F32, 12), c.empty(F32, 12), 1e-5f);
      refused(
          of
              + (variant.isPlain()
                  ? ": it does not normalise x"
                  : ": in is 12, not a multiple of 8, so it does not normalise x"),
          () -> gemv.prepare(variant, c.map, c.x, norm, out));
      LinearCall call = gemv.prepare(variant, c.map, c.x, out);
      refused(of + ": rows is 9, not between 1 and 8", () -> call.run(9));
      refused(of + ": rows is 0, not between 1 and 8", () -> call.run(0));
      refused(
          of + ": x and keys overlap",
          () -> {
            CacheShape one = new CacheShape(1, 1, 1, 8);
            LinearMap qkv = new LinearMap(c.empty(F32, 24L * 12), null, c.empty(F32, 24), 12, 24);
            DeviceBuffer i = c.with(0);
            gemv.prepare(
                variant,
                qkv,
                c.x,
                new QkvAppend(c.empty(F32, 24), c.x, c.empty(F32, 8), i, i, one));
          });
    }
  }

  private static void refused(String message, Runnable call) {
    Exception e = assertThrows(IllegalArgumentException.class, call::run);
    assertEquals(message, e.getMessage());
  }
}
