package dev.loupe.cuda.selftest;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Graph;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.PointwiseKernels;
import java.util.List;
import java.util.Optional;

/** Whether a graph that is replayed does what its launches do one by one. */
final class GraphSelfTest {
  private static final int N = 1003;
  private static final int REPLAYS = 4;
  private static final int WIDTH = 256; // of the products
  private static final int LINKS = 6; // of a chain of them

  private static final KernelChoice STARTING_EARLY =
      new KernelChoice() {
        @Override
        public Optional<Variant> of(List<Variant> candidates, Element element, int rows) {
          return UNTRIED.of(candidates, element, rows);
        }

        @Override
        public boolean startsEarly() {
          return true;
        }
      };

  private final SelfTestInputs c;
  private final PointwiseKernels kernels;

  GraphSelfTest(SelfTestInputs c) {
    this.c = c;
    this.kernels = new PointwiseKernels(c.gpu());
  }

  void graph(Variant v, Element element) {
    if (v.equals(Trial.EARLY)) {
      early();
    } else {
      replay(element);
    }
  }

  /** x += y, y = GELU(x), and x to the host: each replay works on what the one before has left. */
  private void replay(Element element) {
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

  /**
   * x = W y, y = V x, and so on: each product reads what the one before it has written. By kernels
   * that start early, and by such that don't.
   */
  private void early() {
    Gpu gpu = c.gpu();
    GemvKernels gemv = new GemvKernels(gpu);
    Variant v1 = KernelCatalogue.of("gemv").getLast();
    float[] start = c.floats(Element.F32, WIDTH);
    DeviceBuffer[] weights = {square(), square()};
    DeviceBuffer[] results = new DeviceBuffer[2];
    KernelChoice before = gpu.choice();
    for (int turn = 0; turn < 2; turn++) {
      DeviceBuffer[] xy = {c.put(Element.F32, start), c.put(Element.F32, start)};
      LinearCall[] calls = new LinearCall[2];
      for (int i = 0; i < 2; i++) {
        LinearMap map = new LinearMap(weights[i], null, null, WIDTH, WIDTH);
        calls[i] =
            gemv.prepare(
                v1, map, xy[1 - i], new LinearEpilogue.Output(xy[i], KernelActivation.NONE));
      }
      Runnable chain =
          () -> {
            for (int i = 0; i < LINKS; i++) {
              calls[i % 2].run(1);
            }
          };
      chain.run(); // nothing is loaded while a graph is recorded
      if (turn == 1) {
        gpu.use(STARTING_EARLY);
      }
      try (Graph graph = gpu.record(chain)) {
        for (int i = 0; i < REPLAYS; i++) {
          graph.launch();
        }
        gpu.synchronize();
      } finally {
        gpu.use(before);
      }
      results[turn] = xy[0];
    }
    c.compareBits("x of kernels that start early", results[1], results[0]);
  }

  /**
   * W [WIDTH, WIDTH] whose products are about as large as x: if they shrank, the chain would come
   * to rest, and what is read too early would be what comes later, too.
   */
  private DeviceBuffer square() {
    float[] w = c.floats(Element.F32, WIDTH * WIDTH);
    for (int i = 0; i < w.length; i++) {
      w[i] *= (float) Math.sqrt(3.0 / WIDTH); // a third: the variance of what c makes
    }
    return c.put(Element.F32, w);
  }

  private void step(DeviceBuffer[] xy) {
    kernels.addResidual(xy[0], xy[1], N);
    kernels.activate(KernelActivation.GELU_NEW, xy[0], xy[1], N);
  }
}
