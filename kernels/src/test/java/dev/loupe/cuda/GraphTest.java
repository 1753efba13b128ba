package dev.loupe.cuda;

import static dev.loupe.cuda.driver.Parameter.LONG;
import static dev.loupe.cuda.driver.Parameter.POINTER;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.HostPointer;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.List;
import jcuda.Pointer;
import jcuda.driver.CUevent;
import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.CUstream;
import jcuda.driver.CUstreamCaptureMode;
import jcuda.driver.JCudaDriver;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What JCuda and the driver do with a captured graph of kernels, copies and fills. */
@OnDevice
@Timeout(200)
class GraphTest {
  private static final int N = 2048; // of one block
  private static final long BYTES = 4L * N;

  private final Gpu gpu = Emulator.open();
  private final DeviceBuffer x = gpu.allocate(Element.F32, N);
  private final DeviceBuffer y = gpu.allocate(Element.F32, N);
  private final DeviceBuffer copy = gpu.allocate(Element.F32, N);
  private final Launch residual = GpuTest.residual(gpu).set(0, x).set(1, y).set(2, (long) N);
  private final Pointer in = pinned();
  private final Pointer out = pinned();

  private Pointer pinned() {
    Pointer memory = new Pointer();
    gpu.run(() -> check(JCudaDriver.cuMemHostAlloc(memory, BYTES, 0)));
    return memory;
  }

  private static FloatBuffer floats(Pointer pinned) {
    ByteBuffer bytes = pinned.getByteBuffer(0, BYTES);
    return bytes.order(ByteOrder.nativeOrder()).asFloatBuffer();
  }

  private static void check(int rc) {
    assertEquals(0, rc);
  }

  @AfterEach
  void close() {
    gpu.run(
        () -> {
          check(JCudaDriver.cuMemFreeHost(in));
          check(JCudaDriver.cuMemFreeHost(out));
        });
    x.close();
    y.close();
    copy.close();
    gpu.close();
  }

  /**
   * y from the host, x filled on a second stream; x += y; x to a copy and from there to the host.
   */
  private void work(CUstream stream, CUstream other, CUevent forked, CUevent filled) {
    check(JCudaDriver.cuEventRecord(forked, stream));
    check(JCudaDriver.cuStreamWaitEvent(other, forked, 0));
    check(JCudaDriver.cuMemsetD32Async(x.pointer(), Float.floatToIntBits(2), N, other));
    check(JCudaDriver.cuEventRecord(filled, other));
    check(JCudaDriver.cuMemcpyHtoDAsync(y.pointer(), in, BYTES, stream));
    check(JCudaDriver.cuStreamWaitEvent(stream, filled, 0));
    residual.run(1, 1, 1, 256, 1, 0);
    check(JCudaDriver.cuMemcpyDtoDAsync(copy.pointer(), x.pointer(), BYTES, stream));
    check(JCudaDriver.cuMemcpyDtoHAsync(out, copy.pointer(), BYTES, stream));
  }

  private CUgraph captured(CUstream other, CUevent forked, CUevent filled) {
    CUgraph graph = new CUgraph();
    int mode = CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL;
    check(JCudaDriver.cuStreamBeginCapture(gpu.stream(), mode));
    work(gpu.stream(), other, forked, filled);
    check(JCudaDriver.cuStreamEndCapture(gpu.stream(), graph));
    return graph;
  }

  @Test
  void runsWhatWasCapturedWithNewMemoryEachTime() {
    gpu.run(
        () -> {
          CUstream other = new CUstream();
          CUevent forked = new CUevent();
          CUevent filled = new CUevent();
          check(JCudaDriver.cuStreamCreate(other, 0));
          check(JCudaDriver.cuEventCreate(forked, 0));
          check(JCudaDriver.cuEventCreate(filled, 0));
          floats(out).put(0, -1);
          CUgraph graph = captured(other, forked, filled);
          assertEquals(-1, floats(out).get(0), "nothing has run yet");
          CUgraphExec executable = new CUgraphExec();
          check(JCudaDriver.cuGraphInstantiate(executable, graph, 0));
          check(JCudaDriver.cuGraphDestroy(graph));
          for (int round = 1; round <= 3; round++) {
            replay(executable, 10 * round);
          }
          check(JCudaDriver.cuGraphExecDestroy(executable));
          check(JCudaDriver.cuEventDestroy(forked));
          check(JCudaDriver.cuEventDestroy(filled));
          check(JCudaDriver.cuStreamDestroy(other));
        });
  }

  private void replay(CUgraphExec executable, float value) {
    for (int i = 0; i < N; i++) {
      floats(in).put(i, value);
    }
    check(JCudaDriver.cuGraphLaunch(executable, gpu.stream()));
    gpu.synchronize();
    float[] actual = new float[N];
    floats(out).get(actual);
    float[] expected = new float[N];
    Arrays.fill(expected, value + 2);
    assertArrayEquals(expected, actual);
  }

  /**
   * What waits, loads or allocates has no place in a recording, and the stream is well after it.
   */
  @Test
  @OnDevice(emulated = true)
  void whatCannotBeRecordedIsSaid() {
    Emulator.card(-1, 12_020, -1, -1); // newer drivers load kernels in a recording
    try (Gpu old = Emulator.open();
        DeviceBuffer buffer = old.allocate(Element.F32, 2 * N)) {
      Kernel kernel = old.kernel("pointwise", "pointwise_residual_f32");
      Launch known = new Launch(kernel, POINTER, POINTER, LONG);
      known.set(0, buffer).set(1, buffer.slice(N, N)).set(2, (long) N);
      List<Runnable> refused =
          List.of(
              () -> old.kernel("embedding", "embedding_v1_f32"),
              () -> old.pin(BYTES).close(),
              () -> old.allocate(Element.F32, N).close(),
              old::synchronize,
              () -> buffer.upload(new float[N]),
              () -> buffer.download(new float[N]));
      for (Runnable work : refused) {
        String message = Refusal.of(() -> old.record(work).close());
        assertTrue(message.contains("CUDA_ERROR_STREAM_CAPTURE_"), message);
        buffer.fill((byte) 0);
        known.run(1, 1, 1, 256, 1, 0);
        old.synchronize();
      }
      try (Graph graph = old.record(() -> known.run(1, 1, 1, 256, 1, 0))) {
        graph.launch();
        old.synchronize();
      }
    } finally {
      Emulator.usualCard();
    }
  }

  /** Copies of memory that is not pinned are as in CUDA: read at the call, done at its return. */
  @Test
  @OnDevice(emulated = true)
  void whatIsNotPinnedIsCopiedAtTheCall() {
    Emulator.lateStreams(true);
    try (Arena arena = Arena.ofShared()) {
      MemorySegment host = arena.allocate(BYTES, 64);
      HostPointer pointer = new HostPointer(host.address());
      gpu.run(
          () -> {
            host.set(ValueLayout.JAVA_FLOAT, 0, 3);
            check(JCudaDriver.cuMemcpyHtoDAsync(x.pointer(), pointer, BYTES, gpu.stream()));
            host.set(ValueLayout.JAVA_FLOAT, 0, 4); // too late for the copy
            check(JCudaDriver.cuMemcpyDtoHAsync(pointer, x.pointer(), BYTES, gpu.stream()));
            assertEquals(3, host.get(ValueLayout.JAVA_FLOAT, 0));
            floats(in).put(0, 5);
            check(JCudaDriver.cuMemcpyHtoDAsync(x.pointer(), in, BYTES, gpu.stream()));
            floats(in).put(0, 6); // in time: the copy is yet to run
            check(JCudaDriver.cuMemcpyDtoHAsync(out, x.pointer(), BYTES, gpu.stream()));
            assertEquals(600, JCudaDriver.cuStreamQuery(gpu.stream()));
            gpu.synchronize();
            assertEquals(6, floats(out).get(0));
            assertEquals(0, JCudaDriver.cuStreamQuery(gpu.stream()));
          });
    } finally {
      Emulator.lateStreams(false);
    }
  }

  @Test
  void aWaitInACaptureIsRefused() {
    gpu.run(
        () -> {
          int mode = CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL;
          check(JCudaDriver.cuStreamBeginCapture(gpu.stream(), mode));
          assertEquals(900, JCudaDriver.cuStreamSynchronize(gpu.stream()));
          assertEquals(901, JCudaDriver.cuStreamEndCapture(gpu.stream(), new CUgraph()));
          gpu.synchronize();
        });
    if (Emulator.isDriver()) {
      Emulator.forgetErrors();
    }
  }
}
