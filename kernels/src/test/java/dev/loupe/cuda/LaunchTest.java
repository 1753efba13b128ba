package dev.loupe.cuda;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.LONG;
import static dev.loupe.cuda.driver.Parameter.POINTER;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.LaunchResources;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@OnDevice
@Timeout(200)
class LaunchTest {
  private static final int N = 2048; // of one block

  private final Gpu gpu = Emulator.open();
  private final DeviceBuffer x = gpu.allocate(Element.F32, N);
  private final DeviceBuffer y = gpu.allocate(Element.F32, N);
  private final Launch launch = GpuTest.residual(gpu);

  @BeforeEach
  void fill() {
    x.fill((byte) 0);
    float[] ones = new float[N];
    Arrays.fill(ones, 1);
    y.upload(ones);
  }

  @AfterEach
  void close() {
    gpu.close();
  }

  private float[] content(DeviceBuffer buffer) {
    float[] values = new float[N];
    buffer.download(values);
    return values;
  }

  private static float[] constant(float value) {
    float[] values = new float[N];
    Arrays.fill(values, value);
    return values;
  }

  @Test
  void runsAsOftenAsAskedWithWhatIsSetThen() {
    launch.set(0, x).set(1, y).set(2, (long) N);
    for (int i = 0; i < 3; i++) {
      launch.run(1, 1, 1, 256, 1, 0);
    }
    assertArrayEquals(constant(3), content(x));
    launch.set(0, y).set(1, x).run(1, 1, 1, 256, 1, 0);
    assertArrayEquals(constant(4), content(y));
    launch.set(2, 1L).run(1, 1, 1, 256, 1, 0);
    assertEquals(7, content(y)[0]);
    assertEquals(4, content(y)[1]);
  }

  @Test
  void takesSlices() {
    launch.set(0, x.slice(16, 8)).set(1, y.slice(8, 8)).set(2, 8L).run(1, 1, 1, 256, 1, 0);
    float[] expected = new float[N];
    Arrays.fill(expected, 16, 24, 1);
    assertArrayEquals(expected, content(x));
  }

  @Test
  void allocatesNothing() {
    launch.set(0, x).set(1, y).set(2, 8L);
    com.sun.management.ThreadMXBean threads =
        (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long[] bytes = new long[1];
    Runnable many =
        () -> {
          long before = threads.getCurrentThreadAllocatedBytes();
          for (int i = 0; i < 200; i++) {
            launch.set(0, x).set(1, y).set(2, 8L).run(1, 1, 1, 32, 1, 0);
          }
          bytes[0] = threads.getCurrentThreadAllocatedBytes() - before;
        };
    long least = Long.MAX_VALUE; // of a few times: the JVM may allocate for itself
    long handedOver = Long.MAX_VALUE;
    for (int i = 0; i < 5; i++) {
      gpu.run(many);
      least = Math.min(least, bytes[0]);
      many.run(); // handed over one by one
      handedOver = Math.min(handedOver, bytes[0]);
    }
    assertTrue(least < 200, "200 launches allocated %d bytes".formatted(least));
    assertTrue(handedOver < 200, "200 handed over allocated %d bytes here".formatted(handedOver));
  }

  @ParameterizedTest
  @CsvSource({
    "0,1,1,256,1,0",
    "-1,1,1,256,1,0",
    "1,0,1,256,1,0",
    "1,65536,1,256,1,0",
    "1,1,65536,256,1,0",
    "1,1,1,0,1,0",
    "1,1,1,256,0,0",
    "1,1,1,1025,1,0",
    "1,1,1,64,64,0",
    "1,1,1,65536,65536,0",
    "1,1,1,256,1,-1",
    "1,1,1,256,1,1000000000"
  })
  void refusesSizesOutOfTheLimits(int gx, int gy, int gz, int bx, int by, int shared) {
    launch.set(0, x).set(1, y).set(2, (long) N);
    String message = Refusal.ofArguments(() -> launch.run(gx, gy, gz, bx, by, shared));
    assertTrue(
        message.startsWith(
            "cannot launch pointwise_residual_f32 with grid %d x %d x %d, block %d x %d, %d bytes"
                .formatted(gx, gy, gz, bx, by, shared)),
        message);
    launch.run(1, 1, 1, 256, 1, 0);
    assertArrayEquals(constant(1), content(x), "and nothing ran before");
  }

  @Test
  void asksForSharedMemoryBeyond48KiBByItself() {
    launch.set(0, x).set(1, y).set(2, (long) N);
    for (int shared : new int[] {48 * 1024, 48 * 1024 + 16, gpu.maxSharedBytes(), 64 * 1024, 0}) {
      launch.run(1, 1, 1, 256, 1, shared);
    }
    assertArrayEquals(constant(5), content(x));
  }

  @Test
  void tellsWhatALaunchTakes() {
    launch.set(0, x).set(1, y).set(2, (long) N);
    List<LaunchResources> all =
        gpu.resources(
            () -> {
              launch.run(3, 1, 1, 256, 1, 16);
              launch.run(1, 1, 1, 33, 1, gpu.maxSharedBytes());
            });
    assertEquals(2, all.size());
    float[] sums = content(x);
    assertEquals(2, sums[0], "both ran");
    assertEquals(1, sums[N - 1], "one of them in full");
    LaunchResources first = all.getFirst();
    assertEquals("pointwise_residual_f32", first.kernel());
    assertEquals(256, first.threads());
    assertEquals(3, first.blocks());
    assertEquals(768, first.allThreads());
    assertEquals(16, first.sharedBytes());
    assertEquals(1, first.occupancy(), "few registers, and blocks of 8 warps");
    double alone = all.getLast().occupancy(); // all shared memory, two warps
    assertEquals(2.0 / gpu.context().maxWarps(), alone);
    assertEquals(List.of(), gpu.resources(() -> {}));
  }

  /** The emulator reads the images: registers, the largest block, and from them the occupancy. */
  @Test
  @OnDevice(emulated = true)
  void theCompilersFiguresCount() throws Exception {
    Kernel wide = gpu.kernel("layernorm", "layernorm_v2_f32");
    Kernel many = gpu.kernel("attention", "attention_v5_d80_f16");
    assertEquals(1024, wide.maxThreads());
    assertEquals(128, many.maxThreads());
    int registers = 0;
    for (String line : Files.readAllLines(Path.of("resources.tsv"))) {
      if (line.startsWith("attention_v5_d80_f16\tsm_90a-13\t")) {
        registers = Integer.parseInt(line.split("\t", -1)[2]);
      }
    }
    assertEquals(registers, many.registers());
    int[] blocks = new int[1];
    gpu.run(() -> blocks[0] = many.residentBlocks(128, 0));
    // a file of 16,384 registers serves one of four warps, 256 at a time
    assertEquals(16_384 / (Math.ceilDiv(registers * 32, 256) * 256), blocks[0]);
  }

  @Test
  void refusesParametersOfAnotherKind() {
    String takes = ", it takes [POINTER, POINTER, LONG]";
    assertEquals(
        "pointwise_residual_f32: parameter 2 set as INT" + takes,
        Refusal.ofArguments(() -> launch.set(2, 8)));
    assertEquals(
        "pointwise_residual_f32: parameter 0 set as FLOAT" + takes,
        Refusal.ofArguments(() -> launch.set(0, 1f)));
    assertEquals(
        "pointwise_residual_f32: parameter 3 set as LONG" + takes,
        Refusal.ofArguments(() -> launch.set(3, 1L)));
    assertEquals(
        "pointwise_residual_f32: parameter -1 set as POINTER" + takes,
        Refusal.ofArguments(() -> launch.set(-1, x)));
  }

  @Test
  void refusesToRunWithoutAllParameters() {
    launch.set(0, x).set(2, 1L);
    assertEquals(
        "pointwise_residual_f32: parameter 1 is not set",
        Refusal.ofArguments(() -> launch.run(1, 1, 1, 256, 1, 0)));
  }

  @Test
  @SuppressWarnings("NullAway") // on purpose
  void refusesBuffersThatAreNullFreedOrElsewhere() {
    assertEquals(
        "pointwise_residual_f32: buffer 1 is null",
        Refusal.ofArguments(() -> launch.set(1, (DeviceBuffer) null)));
    launch.set(0, x).set(2, 1L);
    assertEquals(
        "pointwise_residual_f32: parameter 1 is not set",
        Refusal.ofArguments(() -> launch.run(1, 1, 1, 256, 1, 0)),
        "and a refused buffer is none");
    try (Gpu other = Emulator.open()) {
      DeviceBuffer elsewhere = other.allocate(Element.F32, N);
      assertEquals(
          "pointwise_residual_f32: buffer 1 belongs to another opened GPU",
          Refusal.ofArguments(() -> launch.set(1, elsewhere)));
    }
    launch.set(0, x).set(1, y).set(2, (long) N);
    y.close();
    assertEquals(
        "pointwise_residual_f32: buffer 1 (a buffer of 2048 f32) was freed",
        Refusal.ofArguments(() -> launch.run(1, 1, 1, 256, 1, 0)));
    assertTrue(Refusal.ofArguments(() -> launch.set(1, y)).contains("after it was freed"));
    assertArrayEquals(constant(0), content(x), "and nothing ran");
  }

  @Test
  @OnDevice(emulated = true)
  void refusesAnotherListOfParametersThanTheKernels() {
    Kernel kernel = gpu.kernel("pointwise", "pointwise_residual_f32");
    for (Parameter[] wrong :
        new Parameter[][] {
          {POINTER, POINTER, INT},
          {POINTER, POINTER, LONG, FLOAT},
          {POINTER, FLOAT, LONG}
        }) {
      String message = Refusal.of(() -> new Launch(kernel, wrong));
      assertTrue(message.startsWith("pointwise_residual_f32: parameter "), message);
    }
  }

  /** The driver cannot be asked how many there are; a real one would read past the block. */
  @Test
  @OnDevice(emulated = true)
  void fewerParametersThanTheKernelsAreFoundOnTheEmulator() {
    Kernel kernel = gpu.kernel("pointwise", "pointwise_residual_f32");
    List<Launch> wrong =
        List.of(new Launch(kernel), new Launch(kernel, POINTER, POINTER).set(0, x).set(1, y));
    for (Launch launch : wrong) {
      String message = Refusal.of(() -> launch.run(1, 1, 1, 256, 1, 0));
      assertTrue(message.contains("CUDA_ERROR_INVALID_VALUE"), message);
    }
  }

  @Test
  @OnDevice(emulated = true)
  void aKernelThatFailsIsNamedAndEndsTheGpu() {
    launch.set(0, x).set(1, y).set(2, 1L << 20);
    String message =
        Refusal.of(
            () -> {
              launch.run(512, 1, 1, 256, 1, 0);
              gpu.synchronize();
            });
    assertTrue(
        message.contains(
            "it last ran pointwise_residual_f32 with grid 512 x 1 x 1, block 256 x 1, 0 bytes"),
        message);
    assertThrows(GpuException.class, () -> content(x));
    assertThrows(GpuException.class, () -> launch.run(1, 1, 1, 256, 1, 0));
    x.close();
    gpu.close();
    assertTrue(
        Refusal.of(Emulator::open).contains("no GPU can be used in this process any more"),
        "as CUDA has it after an illegal address");
    Emulator.revive();
    try (Gpu again = Emulator.open();
        DeviceBuffer z = again.allocate(Element.F32, 1)) {
      z.upload(new float[] {5});
      again.synchronize();
    }
  }
}
