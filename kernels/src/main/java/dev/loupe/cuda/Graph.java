package dev.loupe.cuda;

import static jcuda.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

import jcuda.driver.CUgraph;
import jcuda.driver.CUgraphExec;
import jcuda.driver.JCudaDriver;

/**
 * Launches and copies that were recorded once and are replayed with one call. The addresses and
 * sizes are those of the recording; what they point to may change.
 */
public final class Graph extends DriverObject {
  private final CUgraphExec executable = new CUgraphExec();

  /** Records what {@code work} puts on the stream, without running it. On the GPU's thread. */
  Graph(Gpu gpu, Runnable work) {
    super(gpu);
    gpu.check(
        JCudaDriver.cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "beginning to record a graph");
    CUgraph graph = new CUgraph();
    try {
      work.run();
    } catch (RuntimeException | Error e) {
      giveUp(graph, e);
      throw e;
    }
    gpu.check(JCudaDriver.cuStreamEndCapture(gpu.stream(), graph), "recording a graph");
    try {
      gpu.check(JCudaDriver.cuGraphInstantiate(executable, graph, 0), "preparing a graph");
    } finally {
      gpu.released(JCudaDriver.cuGraphDestroy(graph), "freeing a recording");
    }
  }

  /** Ends the recording, so that the stream is of use again. */
  private void giveUp(CUgraph graph, Throwable failure) {
    int rc = JCudaDriver.cuStreamEndCapture(gpu.stream(), graph);
    if (rc == 0) {
      rc = JCudaDriver.cuGraphDestroy(graph);
    }
    if (rc != 0) {
      failure.addSuppressed(gpu.failure(rc, "ending a recording"));
    }
  }

  /**
   * Puts all that was recorded on the stream. The buffers it uses must still be there.
   *
   * @throws IllegalStateException if it was closed
   */
  public void launch() {
    gpu.run(
        () -> {
          requireLive();
          gpu.check(JCudaDriver.cuGraphLaunch(executable, gpu.stream()), "launching a graph");
        });
  }

  @Override
  void destroy() {
    gpu.released(JCudaDriver.cuGraphExecDestroy(executable), "freeing a graph");
  }
}
