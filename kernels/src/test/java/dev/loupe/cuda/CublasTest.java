package dev.loupe.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.emulator.Close;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.LinearBuffers;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearKernelsTest;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.LinearProblem;
import dev.loupe.cuda.kernels.Serving;
import java.io.IOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Both ways to call cuBLAS, against stand-ins for cuBLAS 12 and 13 that g++ makes for this run. */
@OnDevice(emulated = true)
@Timeout(200)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class CublasTest {
  private static final Path SOURCE = Path.of("src/test/fakecublas/libcublas.cpp");

  private Gpu gpu;
  private SymbolLookup library12;
  private SymbolLookup library13;
  private Cublas cublas12;
  private Cublas cublas13;

  @BeforeAll
  void compileAndOpen(@TempDir Path folder) throws Exception {
    assumeTrue(Files.exists(SOURCE), "the stand-in's source is not here");
    assumeTrue(Cublas.library(12).isEmpty() && Cublas.library(13).isEmpty(), "cuBLAS is installed");
    gpu = Emulator.open();
    assertTrue(Cublas.open(gpu).isEmpty(), "there is none yet");

    // Once a library is loaded, others find it by its name inside, without a loader path.
    Path thirteen = compile(folder, 13);
    System.load(thirteen.toString());
    library13 = Cublas.library(13).orElseThrow();
    cublas13 = Cublas.open(gpu).orElseThrow();

    Path twelve = compile(folder, 12);
    System.load(twelve.toString());
    library12 = Cublas.library(12).orElseThrow();
    cublas12 = Cublas.open(gpu).orElseThrow();
  }

  @AfterAll
  void closeAll() {
    if (cublas12 != null) {
      cublas12.close();
      cublas12.close();
      cublas13.close();
      assertEquals(0, count(library12, "fakecublas_handles"));
      assertEquals(0, count(library13, "fakecublas_handles"));
      assertEquals("[]", gpu.liveBuffers().toString());
      gpu.close();
      cublas12.close();
    }
  }

  private static Path compile(Path folder, int version) throws IOException, InterruptedException {
    String name = "libcublas.so." + version;
    Path versions = Files.writeString(folder.resolve("versions"), name + " { global: *; };");
    Path library = folder.resolve(name);
    Process compiler;
    try {
      compiler =
          new ProcessBuilder(
                  "g++",
                  "-std=c++17",
                  "-O1",
                  "-march=native",
                  "-Wall",
                  "-Wextra",
                  "-Werror",
                  "-shared",
                  "-fPIC",
                  "-fvisibility=hidden",
                  "-DFAKE_VERSION=" + (version * 10_000 + 600),
                  "-Wl,-soname," + name,
                  "-Wl,--version-script=" + versions,
                  SOURCE.toString(),
                  "-o",
                  library.toString())
              .inheritIO()
              .start();
    } catch (IOException e) {
      return Assumptions.abort("no g++ to make a stand-in for cuBLAS with");
    }
    assertEquals(0, compiler.waitFor(), "g++ failed");
    return library;
  }

  private static int count(SymbolLookup library, String function) {
    try {
      return (int)
          Linker.nativeLinker()
              .downcallHandle(
                  library.findOrThrow(function), FunctionDescriptor.of(ValueLayout.JAVA_INT))
              .invokeExact();
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException(function, e);
    }
  }

  private Cublas cublas(int version) {
    return version == 12 ? cublas12 : cublas13;
  }

  @Test
  void takesTwelveThroughJCudaAndThirteenByItsFunctions() {
    assertTrue(cublas12 instanceof Cublas12);
    assertTrue(cublas13 instanceof Cublas13);
    assertEquals(120_600, cublas12.version());
    assertEquals(130_600, cublas13.version());
  }

  private static float[] random(int n, Random random) {
    float[] values = new float[n];
    for (int i = 0; i < n; i++) {
      values[i] = Float.float16ToFloat(Float.floatToFloat16((float) random.nextGaussian()));
    }
    return values;
  }

  private static float rounded(Element element, float value) {
    return element == Element.BF16 ? Element.fromBf16(Element.toBf16(value)) : value;
  }

  @ParameterizedTest
  @CsvSource({
    "12,F32,F32,false", "12,F16,F16,false", "12,BF16,BF16,true", "12,F16,F32,true",
    "13,F32,F32,true", "13,F16,F16,true", "13,BF16,BF16,false", "13,BF16,F32,false"
  })
  void multipliesByTheTransposedWeight(int version, Element element, Element result, boolean add) {
    int before = count(version == 12 ? library12 : library13, "fakecublas_products");
    int[][] shapes = {{1, 1, 1}, {1, 7, 3}, {5, 31, 33}, {3, 64, 2}, {65, 8, 9}};
    for (int[] shape : shapes) {
      int rows = shape[0];
      int in = shape[1];
      int out = shape[2];
      Random random = new Random(rows);
      float[] x = random(rows * in, random);
      float[] w = random(out * in, random);
      float[] y = random(rows * out, random);
      double[] expected = new double[rows * out];
      double[] tolerance = new double[rows * out];
      // one rounding of the result, and in + 1 of sums in f32
      double last = result == Element.F32 ? 0 : result == Element.F16 ? 0x1p-11 : 0x1p-8;
      for (int r = 0; r < rows; r++) {
        for (int o = 0; o < out; o++) {
          double sum = add ? rounded(result, y[r * out + o]) : 0;
          double size = Math.abs(sum);
          for (int i = 0; i < in; i++) {
            double product =
                (double) rounded(element, x[r * in + i]) * rounded(element, w[o * in + i]);
            sum += product;
            size += Math.abs(product);
          }
          expected[r * out + o] = sum;
          tolerance[r * out + o] = size * (in + 1) * 0x1p-24 + Math.abs(sum) * last + 1e-30;
        }
      }
      try (DeviceBuffer dx = gpu.allocate(element, x.length);
          DeviceBuffer dw = gpu.allocate(element, w.length);
          DeviceBuffer dy = gpu.allocate(result, y.length)) {
        dx.upload(x);
        dw.upload(w);
        dy.fill((byte) 0xff);
        if (add) {
          dy.upload(y);
        }
        cublas(version).linear(dx, dw, dy, rows, in, out, add);
        dy.download(y);
      }
      String what = "cuBLAS %d %s %s".formatted(version, element, Arrays.toString(shape));
      Close.check(what, expected, y, tolerance);
    }
    int after = count(version == 12 ? library12 : library13, "fakecublas_products");
    assertEquals(shapes.length, after - before, "done by that library");
  }

  @ParameterizedTest
  @ValueSource(ints = {12, 13})
  void refusesWhatDoesNotFit(int version) {
    Cublas cublas = cublas(version);
    try (DeviceBuffer x = gpu.allocate(Element.F16, 6);
        DeviceBuffer w = gpu.allocate(Element.F16, 12);
        DeviceBuffer y = gpu.allocate(Element.F16, 8);
        DeviceBuffer brain = gpu.allocate(Element.BF16, 8);
        DeviceBuffer ids = gpu.allocate(Element.I32, 100)) {
      cublas.linear(x, w, y, 2, 3, 4, false);
      assertEquals(
          "cuBLAS: x has 6 elements, needs 9",
          Refusal.ofArguments(() -> cublas.linear(x, w, y, 3, 3, 4, false)));
      assertEquals(
          "cuBLAS: weight has 12 elements, needs 15",
          Refusal.ofArguments(() -> cublas.linear(x, w, y, 1, 3, 5, false)));
      assertEquals(
          "cuBLAS: y has 6 elements, needs 8",
          Refusal.ofArguments(() -> cublas.linear(x, w, x, 2, 3, 4, false)));
      assertEquals(
          "cuBLAS: y holds BF16, not F16",
          Refusal.ofArguments(() -> cublas.linear(x, w, brain, 2, 3, 4, false)));
      assertEquals(
          "cuBLAS: x holds i32, not f32, f16 or bf16",
          Refusal.ofArguments(() -> cublas.linear(ids, w, y, 2, 3, 4, false)));
      assertEquals(
          "cuBLAS: rows 2, in 0, out 4: not all positive",
          Refusal.ofArguments(() -> cublas.linear(x, w, y, 2, 0, 4, false)));
      assertTrue(
          Refusal.ofArguments(() -> cublas.linear(x, w, y, 1 << 30, 1 << 30, 1, false))
              .contains("needs 1152921504606846976"));
      try (Gpu other = Emulator.open()) {
        DeviceBuffer elsewhere = other.allocate(Element.F16, 8);
        assertEquals(
            "cuBLAS: y is on another GPU",
            Refusal.ofArguments(() -> cublas.linear(x, w, elsewhere, 2, 3, 4, false)));
      }
    }
  }

  @Test
  void refusesUseAfterItWasClosed() {
    try (DeviceBuffer x = gpu.allocate(Element.F32, 1)) {
      Cublas closed = Cublas.open(gpu).orElseThrow();
      closed.close();
      assertEquals("cuBLAS was closed", Refusal.of(() -> closed.linear(x, x, x, 1, 1, 1, false)));
    }
  }

  @Test
  void saysWhichStatusTheLibraryReturned() {
    assertEquals(
        "cuBLAS failed at it: CUBLAS_STATUS_ARCH_MISMATCH",
        Refusal.of(() -> Cublas.check(8, "it")));
  }

  /** The three epilogues against the same maps by Loupe's own kernels. */
  @ParameterizedTest
  @CsvSource({"12, BEST", "13, BEST", "13, PLAIN"})
  void linearMapsWithTheirEpilogues(int version, Serving serving) {
    gpu.use(
        (c, e, rows) ->
            c.getFirst().family().equals("epilogue")
                ? serving.of(c, e, rows)
                : KernelChoice.UNTRIED.of(c, e, rows));
    LinearKernels own = new LinearKernels(gpu);
    CublasLinear linear = new CublasLinear(gpu, version == 12 ? cublas12 : cublas13);
    CacheShape cache = LinearKernelsTest.CACHE;
    int rows = LinearKernelsTest.sequence().length;
    try {
      for (Element element : new Element[] {Element.F32, Element.F16, Element.BF16}) {
        for (int outputs : new int[] {37, 3 * cache.width()}) {
          LinearProblem p = new LinearProblem(element, element, rows, cache.width(), outputs, 3);
          try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
            for (KernelActivation f : KernelActivation.values()) {
              DeviceBuffer mine = b.target(element);
              DeviceBuffer theirs = b.target(element);
              own.prepare(
                      own.variantFor(b.map, rows), b.map, b.x, new LinearEpilogue.Output(mine, f))
                  .run(rows);
              linear.prepare(b.map, b.x, new LinearEpilogue.Output(theirs, f)).run(rows);
              assertNear(element, b.result(mine), b.result(theirs));
            }
            DeviceBuffer mine = b.with(Element.F32, new float[rows * outputs]);
            DeviceBuffer theirs = b.with(Element.F32, new float[rows * outputs]);
            own.prepare(own.variantFor(b.map, rows), b.map, b.x, new LinearEpilogue.Residual(mine))
                .run(rows);
            linear.prepare(b.map, b.x, new LinearEpilogue.Residual(theirs)).run(rows);
            linear.prepare(b.map, b.x, new LinearEpilogue.Residual(theirs)).run(rows);
            float[] once = new float[rows * outputs];
            float[] twice = new float[rows * outputs];
            mine.download(once);
            theirs.download(twice);
            for (int i = 0; i < twice.length; i++) {
              twice[i] /= 2;
            }
            assertNear(Element.F32, once, twice);
            if (outputs == 3 * cache.width()) {
              assertNear(
                  element,
                  append(b, (map, x, to) -> own.prepare(own.variantFor(map, rows), map, x, to)),
                  append(b, linear::prepare));
            }
          }
        }
      }
    } finally {
      linear.freeProducts();
      gpu.use(KernelChoice.UNTRIED);
    }
  }

  private interface Prepare {
    LinearCall prepare(LinearMap map, DeviceBuffer x, LinearEpilogue epilogue);
  }

  /** qkv, then keys and values, as one array. */
  private static float[] append(LinearBuffers b, Prepare how) {
    CacheShape cache = LinearKernelsTest.CACHE;
    DeviceBuffer keys = b.with(Element.F32, new float[(int) cache.elements()]);
    DeviceBuffer values = b.with(Element.F32, new float[(int) cache.elements()]);
    DeviceBuffer qkv = b.with(Element.F32, new float[b.problem.rows * b.problem.outputs]);
    how.prepare(
            b.map,
            b.x,
            new LinearEpilogue.QkvAppend(
                qkv,
                keys,
                values,
                b.with(LinearKernelsTest.sequence()),
                b.with(LinearKernelsTest.position()),
                cache))
        .run(b.problem.rows);
    float[] all = new float[(int) (qkv.elements() + 2 * cache.elements())];
    int at = 0;
    for (DeviceBuffer part : new DeviceBuffer[] {qkv, keys, values}) {
      float[] some = new float[(int) part.elements()];
      part.download(some);
      System.arraycopy(some, 0, all, at, some.length);
      at += some.length;
    }
    return all;
  }

  /** Products of 16 numbers, added in another order, and rounded to {@code element}. */
  private static void assertNear(Element element, float[] a, float[] b) {
    double relative = element == Element.F32 ? 1e-5 : element == Element.F16 ? 1e-3 : 8e-3;
    assertEquals(a.length, b.length);
    for (int i = 0; i < a.length; i++) {
      assertEquals(a[i], b[i], relative * Math.max(1, Math.abs(a[i])), element + " " + i);
    }
  }
}
