package dev.loupe.cuda;

import static jcuda.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING;

import dev.loupe.cuda.driver.GpuException;
import jcuda.driver.CUevent;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/** A place in the order of the work on a stream that the host, and other streams, can wait for. */
public final class CudaEvent extends DriverObject {
  private final CUevent event = new CUevent();

  /** On the GPU's thread. */
  CudaEvent(Gpu gpu) {
    super(gpu);
    gpu.check(JCudaDriver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "creating an event");
  }

  /** Sets it behind all that is on the stream now. */
  public void set() {
    gpu.run(
        () -> {
          requireLive();
          gpu.check(JCudaDriver.cuEventRecord(event, gpu.stream()), "recording an event");
        });
  }

  /**
   * Waits until the GPU has done all that was on the stream when it was set last.
   *
   * @throws GpuException if any of that failed
   */
  public void await() {
    gpu.run(
        () -> {
          requireLive();
          gpu.check(JCudaDriver.cuEventSynchronize(event), "waiting for the GPU");
        });
  }

  /**
   * Lets what is put on the current stream from now on run after what came before this was set,
   * whichever stream that is on; nothing waits for a mark that was never set.
   */
  public void hold() {
    gpu.run(
        () -> {
          requireLive();
          gpu.check(JCudaDriver.cuStreamWaitEvent(gpu.stream(), event, 0), "waiting for an event");
        });
  }

  /** As {@link Gpu#milliseconds} has it; on the GPU's thread. */
  static float milliseconds(Gpu gpu, CUstream stream, Runnable work) {
    float[] elapsed = new float[1];
    CUevent before = new CUevent();
    CUevent after = new CUevent();
    gpu.check(JCudaDriver.cuEventCreate(before, 0), "creating an event");
    try {
      gpu.check(JCudaDriver.cuEventCreate(after, 0), "creating an event");
      try {
        gpu.check(JCudaDriver.cuEventRecord(before, stream), "recording an event");
        work.run();
        gpu.check(JCudaDriver.cuEventRecord(after, stream), "recording an event");
        gpu.check(JCudaDriver.cuEventSynchronize(after), "waiting for the GPU");
        gpu.check(JCudaDriver.cuEventElapsedTime(elapsed, before, after), "reading the time");
      } finally {
        gpu.released(JCudaDriver.cuEventDestroy(after), "freeing an event");
      }
    } finally {
      gpu.released(JCudaDriver.cuEventDestroy(before), "freeing an event");
    }
    return elapsed[0];
  }

  @Override
  void destroy() {
    gpu.released(JCudaDriver.cuEventDestroy(event), "freeing an event");
  }
}
