package dev.loupe.cuda.selftest;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Graph;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.PointwiseKernels;

/** Whether a graph that is replayed does what its launches do one by one. */
final class GraphSelfTest {
  private static final int N = 1003;
  private static final int REPLAYS = 4;

  private final SelfTestInputs c;
  private final PointwiseKernels kernels;

  GraphSelfTest(SelfTestInputs c) {
    this.c = c;
    this.kernels = new PointwiseKernels(c.gpu());
  }

  /** x += y, y = GELU(x), and x to the host: each replay works on what the one before has left. */
  void replay(Variant v, Element element) {
    float[] x = c.floats(element, N);
    float[] y = c.floats(element, N);
    DeviceBuffer[] eager = {c.put(element, x), c.put(element, y)};
    DeviceBuffer[] replayed = {c.put(element, x), c.put(element, y)};
    for (int i = 0; i < REPLAYS; i++) {
      step(eager); // first, so that nothing is loaded while a graph is recorded
    }
    try (HostBuffer host = c.gpu().pin((long) N * element.bytes());
        Graph graph =
            c.gpu()
                .record(
                    () -> {
                      step(replayed);
                      host.copyFrom(replayed[0], N, 0);
                    })) {
      for (int i = 0; i < REPLAYS; i++) {
        graph.launch();
      }
      c.gpu().synchronize();
      c.compareBits("x after %d replays".formatted(REPLAYS), replayed[0], eager[0]);
      c.compareBits("y after %d replays".formatted(REPLAYS), replayed[1], eager[1]);
      DeviceBuffer copy = c.empty(element, N);
      copy.upload(host.memory());
      c.compareBits("x on the host", copy, eager[0]);
    }
  }

  private void step(DeviceBuffer[] xy) {
    kernels.addResidual(xy[0], xy[1], N);
    kernels.activate(KernelActivation.GELU_NEW, xy[0], xy[1], N);
  }
}
