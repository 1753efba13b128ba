package dev.loupe.cuda;

import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

import dev.loupe.cuda.driver.DriverRequirements;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;

/**
 * The driver's context on a card, the stream in it, and what the driver tells of the card. Made and
 * changed on the GPU's thread.
 */
final class CudaContext {
  /** JCuda's handle, which tells its address for calls that JCuda lacks. */
  static final class Stream extends CUstream {
    long address() {
      return getNativePointer();
    }
  }

  private final Gpu gpu;
  private final CUdevice device = new CUdevice();
  private final CUcontext context = new CUcontext();
  private final Stream stream = new Stream();
  private Stream current = stream; // where launches and copies go
  private boolean created;
  private int computeCapability;
  private int multiprocessors;
  private int maxSharedBytes;
  private int maxWarps;
  private long totalBytes;

  CudaContext(Gpu gpu) {
    this.gpu = gpu;
  }

  /** Starts the driver, looks at the card, and creates the context and its stream. */
  void create(int ordinal) {
    JCudaDriver.setExceptionsEnabled(false); // they carry no more than the error's name
    gpu.check(JCudaDriver.cuInit(0), "starting the driver");
    gpu.check(JCudaDriver.cuDeviceGet(device, ordinal), "opening the GPU");
    computeCapability =
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
            + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    DriverRequirements.checkCapability(ordinal, gpu.name(), computeCapability);
    multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    maxSharedBytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    maxWarps = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / 32;
    long[] total = new long[1];
    gpu.check(JCudaDriver.cuDeviceTotalMem(total, device), "asking for the memory");
    totalBytes = total[0];
    gpu.check(JCudaDriver.cuCtxCreate(context, 0, device), "creating a context");
    created = true;
    // not CU_STREAM_NON_BLOCKING: plain copies then wait for the stream, and it for them
    gpu.check(JCudaDriver.cuStreamCreate(stream, 0), "creating a stream");
  }

  private int attribute(int attribute) {
    int[] value = new int[1];
    gpu.check(
        JCudaDriver.cuDeviceGetAttribute(value, attribute, device), "asking for an attribute");
    return value[0];
  }

  /** True once the context is there; its stream may be missing yet. */
  boolean isCreated() {
    return created;
  }

  int computeCapability() {
    return computeCapability;
  }

  int multiprocessors() {
    return multiprocessors;
  }

  int maxSharedBytes() {
    return maxSharedBytes;
  }

  /** Warps that a multiprocessor has room for. */
  int maxWarps() {
    return maxWarps;
  }

  long totalBytes() {
    return totalBytes;
  }

  /** The GPU's own stream. */
  Stream stream() {
    return stream;
  }

  /** Where launches and copies go now. */
  Stream current() {
    return current;
  }

  /** Sends what {@code work} puts on the stream to {@code side}. */
  void divert(Stream side, Runnable work) {
    Stream before = current;
    current = side;
    try {
      work.run();
    } finally {
      current = before;
    }
  }

  void freeStream() {
    gpu.released(JCudaDriver.cuStreamDestroy(stream), "freeing a stream");
  }

  /** Gives the context back, and with it all that is left in it. */
  void destroy() {
    int rc = JCudaDriver.cuCtxDestroy(context);
    gpu.released(rc, "closing the GPU");
  }
}
