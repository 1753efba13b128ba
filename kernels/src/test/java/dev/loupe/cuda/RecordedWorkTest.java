package dev.loupe.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.kernels.PointwiseKernels;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Graphs, marks and pinned memory: work that goes on while the host does something else. */
@OnDevice
class RecordedWorkTest {
  @Test
  void aGraphRunsWhenItIsLaunchedAndWithWhatIsThereThen() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer x = gpu.allocate(Element.F32, 40);
        DeviceBuffer y = gpu.allocate(Element.F32, 40);
        HostBuffer host = gpu.pin(40 * Float.BYTES);
        CudaEvent mark = gpu.mark()) {
      PointwiseKernels pointwise = new PointwiseKernels(gpu);
      x.fill((byte) 0);
      float[] ones = new float[40];
      java.util.Arrays.fill(ones, 1);
      y.upload(ones);
      pointwise.addResidual(x, y, 40); // so that nothing is loaded while recording
      x.fill((byte) 0);
      try (Graph graph =
          gpu.record(
              () -> {
                pointwise.addResidual(x, y, 40);
                y.copyFrom(x, 40);
                host.copyFrom(y, 40, 0);
              })) {
        assertArrayEquals(new float[40], values(x), "recording runs nothing");
        for (int times : new int[] {1, 2, 4}) { // y becomes x, so x doubles
          graph.launch();
          mark.set();
          mark.await();
          assertEquals(times, host.memory().getAtIndex(ValueLayout.JAVA_FLOAT, 39));
        }
      }
      assertEquals(2, gpu.liveBuffers().size());
    }
  }

  private static float[] values(DeviceBuffer buffer) {
    float[] values = new float[(int) buffer.elements()];
    buffer.download(values);
    return values;
  }

  @Test
  void closedOnesAreRefused() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer x = gpu.allocate(Element.F32, 8)) {
      Graph graph = gpu.record(() -> x.copyFrom(x.slice(4, 4), 4));
      HostBuffer host = gpu.pin(16);
      CudaEvent mark = gpu.mark();
      List.of(graph, host, mark).forEach(RecordedWorkTest::closeTwice);
      assertThrows(IllegalStateException.class, graph::launch);
      assertThrows(IllegalArgumentException.class, () -> host.copyFrom(x, 1, 0));
      assertThrows(IllegalStateException.class, () -> host.memory().fill((byte) 0));
      assertThrows(IllegalStateException.class, mark::set);
      assertThrows(IllegalStateException.class, mark::await);
    }
  }

  private static void closeTwice(AutoCloseable resource) {
    try {
      resource.close();
      resource.close();
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void copiesBeyondAnEndAreRefused() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer x = gpu.allocate(Element.F32, 8);
        DeviceBuffer half = gpu.allocate(Element.F16, 8);
        HostBuffer host = gpu.pin(16)) {
      assertThrows(IllegalArgumentException.class, () -> host.copyFrom(x, 5, 0));
      assertThrows(IllegalArgumentException.class, () -> host.copyFrom(x, 4, 4));
      assertThrows(IllegalArgumentException.class, () -> host.copyFrom(x, 1, -1));
      assertThrows(IllegalArgumentException.class, () -> host.copyFrom(x, 9, 0));
      assertThrows(IllegalArgumentException.class, () -> x.copyFrom(half, 1));
      assertThrows(IllegalArgumentException.class, () -> x.copyFrom(x, 9));
      assertThrows(IllegalArgumentException.class, () -> gpu.pin(0));
    }
  }

  /** What can't be recorded ends the recording with an error, and the stream is usable after it. */
  @Test
  void aRecordingThatFailsLeavesTheStreamUsable() {
    try (Gpu gpu = Emulator.open();
        DeviceBuffer x = gpu.allocate(Element.F32, 8)) {
      IllegalStateException mine = new IllegalStateException("mine");
      assertEquals(
          mine,
          assertThrows(
              IllegalStateException.class,
              () ->
                  gpu.record(
                      () -> {
                        throw mine;
                      })));
      x.fill((byte) 0);
      assertArrayEquals(new float[8], values(x));
    }
  }
}
