package dev.loupe.cuda;

import static dev.loupe.cuda.driver.Parameter.LONG;
import static dev.loupe.cuda.driver.Parameter.POINTER;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@OnDevice
@Timeout(200)
class GpuTest {
  static Launch residual(Gpu gpu) {
    Kernel kernel = gpu.kernel("pointwise", "pointwise_residual_f32");
    return new Launch(kernel, POINTER, POINTER, LONG);
  }

  @Test
  void saysWhatItIs() {
    try (Gpu gpu = Emulator.open()) {
      assertFalse(gpu.name().isBlank());
      assertTrue(gpu.computeCapability() >= 75, "" + gpu.computeCapability());
      assertTrue(gpu.multiprocessors() > 0);
      assertTrue(gpu.maxSharedBytes() >= 64 * 1024, "" + gpu.maxSharedBytes());
      assertTrue(gpu.freeBytes() > 0 && gpu.freeBytes() <= gpu.totalBytes());
      assertTrue(gpu.driverVersion() >= 12_000, "" + gpu.driverVersion());
    }
  }

  @Test
  void refusesADeviceThatIsNotThere() {
    int count = CudaDriver.find().cards().size();
    assertTrue(Refusal.of(() -> Gpu.open(count)).startsWith("there is no GPU " + count));
    assertTrue(Refusal.of(() -> Gpu.open(-1)).startsWith("there is no GPU -1"));
  }

  @Test
  @OnDevice(emulated = true)
  void refusesDriversAndCardsThatWillNotDo() {
    try {
      Emulator.card(-1, 11_080, -1, -1);
      assertEquals(
          "no GPU can be used: the NVIDIA driver is too old, it supports CUDA 11.8 and 12.0 is"
              + " needed; update it to 525 or newer, or run on the CPU",
          Refusal.of(() -> Gpu.open(0)));
      Emulator.card(-1, 13_000, 0, -1);
      assertEquals(
          "no GPU can be used: the driver is there (CUDA 13.0, no card); see nvidia-smi, or run on"
              + " the CPU",
          Refusal.of(() -> Gpu.open(0)));
      Emulator.card(70, -1, 1, -1);
      String message = Refusal.of(() -> Gpu.open(0));
      assertTrue(message.contains("has compute capability 7.0, and the kernels need 7.5"), message);
    } finally {
      Emulator.usualCard();
    }
    Emulator.open().close();
  }

  @Test
  @OnDevice(emulated = true)
  void fillsTheMemoryToTheEnd() {
    Emulator.card(-1, -1, -1, 1 << 20);
    try (Gpu gpu = Emulator.open()) {
      assertEquals(1 << 20, gpu.totalBytes());
      DeviceBuffer most = gpu.allocate(Element.I8, gpu.freeBytes());
      assertEquals(
          "out of GPU memory: 1 bytes for 1 i8, and 0 bytes of 1.0 MiB are free on " + gpu.name(),
          Refusal.of(() -> gpu.allocate(Element.I8, 1)));
      most.close();
      gpu.allocate(Element.I8, 1).close();
    } finally {
      Emulator.usualCard();
    }
  }

  @Test
  void saysHowMuchWasAskedAndIsFree() {
    try (Gpu gpu = Emulator.open()) {
      long elements = gpu.totalBytes() / 4 + 1;
      String message = Refusal.of(() -> gpu.allocate(Element.F32, elements));
      assertTrue(message.startsWith("out of GPU memory: "), message);
      assertTrue(message.contains("for " + elements + " f32, and "), message);
      assertTrue(message.contains(Gpu.size(gpu.totalBytes()) + " are free on "), message);
      try (DeviceBuffer small = gpu.allocate(Element.F32, 1)) {
        assertTrue(small.isLive(), "the GPU is still of use");
      }
    }
  }

  @Test
  void refusesSizesThatAreNone() {
    try (Gpu gpu = Emulator.open()) {
      for (long n : new long[] {0, -1, Long.MIN_VALUE, Long.MAX_VALUE, Long.MAX_VALUE / 4 + 1}) {
        String message = Refusal.ofArguments(() -> gpu.allocate(Element.F32, n));
        assertEquals("a buffer of " + n + " f32 cannot be allocated", message);
      }
    }
  }

  @Test
  void writesSizesForPeople() {
    assertEquals("1023 bytes", Gpu.size(1023));
    assertEquals("1.0 KiB", Gpu.size(1024));
    assertEquals("1.5 GiB", Gpu.size(3L << 29));
    assertEquals("8.0 EiB", Gpu.size(Long.MAX_VALUE));
  }

  @Test
  void findsAKernelOnce() {
    try (Gpu gpu = Emulator.open()) {
      Kernel kernel = gpu.kernel("pointwise", "pointwise_residual_f32");
      assertEquals("pointwise_residual_f32", kernel.name());
      assertSame(kernel, gpu.kernel("pointwise", "pointwise_residual_f32"));
      assertEquals(
          "finding the kernel pointwise_residual_f99 in pointwise.cu failed: named symbol not found"
              + " (CUDA_ERROR_NOT_FOUND)",
          Refusal.of(() -> gpu.kernel("pointwise", "pointwise_residual_f99")));
    }
  }

  @Test
  @OnDevice(emulated = true)
  void saysThatAnImageIsNone() {
    for (byte[] image : new byte[][] {{}, {1, 2, 3}, new byte[100]}) {
      try (Gpu gpu = Gpu.open(0, (file, capability, driver) -> image)) {
        String message = Refusal.of(() -> gpu.kernel("pointwise", "pointwise_residual_f32"));
        assertTrue(message.startsWith("loading the kernels of pointwise.cu on "), message);
        assertTrue(message.contains(" failed: "), message);
      }
    }
  }

  @Test
  void closesOnceAndRefusesWorkAfterwards() {
    Gpu gpu = Emulator.open();
    DeviceBuffer x = gpu.allocate(Element.F32, 8);
    DeviceBuffer y = gpu.allocate(Element.F32, 8);
    Launch launch = residual(gpu).set(0, x).set(1, y).set(2, 8L);
    gpu.close();
    gpu.close();
    List<Runnable> uses =
        List.of(
            () -> gpu.allocate(Element.F32, 1),
            gpu::freeBytes,
            gpu::synchronize,
            () -> gpu.kernel("pointwise", "pointwise_residual_f32"),
            () -> gpu.run(() -> {}),
            () -> gpu.milliseconds(() -> {}),
            () -> launch.run(1, 1, 1, 256, 1, 0));
    for (Runnable use : uses) {
      assertEquals("the GPU was closed", Refusal.of(use));
    }
    assertFalse(x.isLive());
    assertTrue(Refusal.of(() -> x.upload(new float[8])).contains("was closed"));
    assertTrue(Refusal.ofArguments(x::address).contains("after it was freed"));
    x.close();
    assertEquals(List.of(), gpu.liveBuffers());
  }

  @Test
  void tellsWhatWasLeftAndByWhom() {
    try (Gpu gpu = Emulator.open()) {
      DeviceBuffer kept = gpu.allocate(Element.BF16, 12);
      gpu.allocate(Element.F32, 1).close();
      List<String> live = gpu.liveBuffers();
      assertEquals(1, live.size(), live.toString());
      assertTrue(live.get(0).startsWith("a buffer of 12 bf16 from "), live.get(0));
      assertTrue(live.get(0).contains("GpuTest.tellsWhatWasLeft"), live.get(0));
      kept.close();
      kept.close();
      assertEquals(List.of(), gpu.liveBuffers());
    }
  }

  @Test
  @OnDevice(emulated = true)
  void closingFreesWhatIsLeft() {
    long before = Emulator.liveAllocations();
    Gpu gpu = Emulator.open();
    for (int i = 1; i <= 5; i++) {
      gpu.allocate(Element.F32, i);
    }
    assertEquals(before + 5, Emulator.liveAllocations());
    gpu.close();
    assertEquals(before, Emulator.liveAllocations());
  }

  @Test
  void servesSeveralThreads() throws Exception {
    int threads = 6;
    int n = 5_000;
    try (Gpu gpu = Emulator.open();
        ExecutorService pool = Executors.newVirtualThreadPerTaskExecutor()) {
      CountDownLatch start = new CountDownLatch(threads);
      List<Future<float[]>> results = new ArrayList<>();
      for (int t = 1; t <= threads; t++) {
        float step = t;
        Callable<float[]> work =
            () -> {
              start.countDown();
              start.await();
              try (DeviceBuffer x = gpu.allocate(Element.F32, n);
                  DeviceBuffer y = gpu.allocate(Element.F32, n)) {
                x.fill((byte) 0);
                float[] host = new float[n];
                Arrays.fill(host, step);
                y.upload(host);
                Launch launch = residual(gpu).set(0, x).set(1, y).set(2, (long) n);
                for (int i = 0; i < 10; i++) {
                  launch.run((n + 2047) / 2048, 1, 1, 256, 1, 0);
                }
                x.download(host);
                return host;
              }
            };
        results.add(pool.submit(work));
      }
      for (int t = 1; t <= threads; t++) {
        float[] expected = new float[n];
        Arrays.fill(expected, 10f * t);
        assertArrayEquals(expected, results.get(t - 1).get(), "thread " + t);
      }
      assertEquals(List.of(), gpu.liveBuffers());
    }
  }

  @Test
  void anInterruptIsKeptForTheCaller() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer x = gpu.allocate(Element.F32, 1 << 20)) {
      Thread.currentThread().interrupt();
      x.upload(new float[1 << 20]);
      gpu.synchronize();
      assertTrue(Thread.interrupted());
    }
  }

  @Test
  void runsWorkOnItsThreadAndHandsBackWhatItThrows() {
    try (Gpu gpu = Emulator.open()) {
      String[] name = new String[1];
      gpu.run(() -> gpu.run(() -> name[0] = Thread.currentThread().getName()));
      assertEquals("loupe-gpu", name[0]);
      RuntimeException mine = new IllegalStateException("mine");
      assertSame(
          mine,
          assertThrows(
              IllegalStateException.class,
              () ->
                  gpu.run(
                      () -> {
                        throw mine;
                      })));
      gpu.synchronize();
    }
  }

  @Test
  void isClosedByManyAtOnceAndFromItsOwnThread() throws Exception {
    for (int round = 0; round < 5; round++) {
      Gpu gpu = Emulator.open();
      gpu.allocate(Element.F32, 4);
      try (ExecutorService pool = Executors.newFixedThreadPool(4)) {
        List<Future<?>> closers = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
          closers.add(pool.submit(gpu::close));
        }
        for (Future<?> closer : closers) {
          closer.get();
        }
      }
    }
    Gpu gpu = Emulator.open();
    gpu.run(gpu::close);
    assertEquals("the GPU was closed", Refusal.of(gpu::synchronize));
  }

  @Test
  void timesWhatIsOnTheStream() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer x = gpu.allocate(Element.F32, 2048)) {
      x.fill((byte) 0);
      try (DeviceBuffer y = gpu.allocate(Element.F32, 2048)) {
        y.fill((byte) 0);
        Launch launch = residual(gpu).set(0, x).set(1, y).set(2, 2048L);
        double milliseconds = gpu.milliseconds(() -> launch.run(1, 1, 1, 256, 1, 0));
        assertTrue(milliseconds >= 0 && milliseconds < 10_000, "" + milliseconds);
      }
    }
  }
}
