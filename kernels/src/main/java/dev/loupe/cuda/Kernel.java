package dev.loupe.cuda;

import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.HostPointer;
import dev.loupe.cuda.driver.KernelImage;
import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.util.stream.Collectors;
import jcuda.driver.CUfunction;
import jcuda.driver.CUfunction_attribute;
import jcuda.driver.CUjit_option;
import jcuda.driver.CUmodule;
import jcuda.driver.JCudaDriver;
import jcuda.driver.JITOptions;

/** One entry point of a loaded module; lives as long as its {@link Gpu}. */
public final class Kernel {
  /** What a block gets without asking for more, static and dynamic. */
  private static final int SHARED_BYTES = 48 * 1024;

  private static final int LOG_BYTES = 8 * 1024;

  private final Gpu gpu;
  private final String name;
  private final Handle handle;
  private final int maxThreads;
  private final int registers;
  private final int staticSharedBytes;
  private final int architecture;
  private int sharedBytes; // dynamic ones that blocks may have now

  /** On the GPU's thread. */
  private Kernel(Gpu gpu, String name, Handle handle) {
    this.gpu = gpu;
    this.name = name;
    this.handle = handle;
    maxThreads = attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    registers = attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS);
    staticSharedBytes = attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    architecture = attribute(CUfunction_attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION);
    sharedBytes = SHARED_BYTES - staticSharedBytes;
  }

  private int attribute(int attribute) {
    int[] value = new int[1];
    gpu.check(
        JCudaDriver.cuFuncGetAttribute(value, attribute, handle),
        "asking for the limits of " + name);
    return value[0];
  }

  /** JCuda's handle, which tells its address for calls that JCuda lacks. */
  static final class Handle extends CUfunction {
    long address() {
      return getNativePointer();
    }
  }

  /** Name of the entry point, e.g. {@code linear_v4_bf16}. */
  public String name() {
    return name;
  }

  /** The GPU that it is loaded on. */
  public Gpu gpu() {
    return gpu;
  }

  /**
   * Most threads of a block: what it was compiled for or its registers allow, at most the device's
   * limit.
   */
  public int maxThreads() {
    return maxThreads;
  }

  /** Registers of a thread; 0 where the driver does not say. */
  int registers() {
    return registers;
  }

  /** The compute capability, times ten, that it was compiled for; its card's may be higher. */
  int architecture() {
    return architecture;
  }

  /** Shared memory of a block before any dynamic one. */
  int staticSharedBytes() {
    return staticSharedBytes;
  }

  /** Blocks that are resident on a multiprocessor at once. */
  public int residentBlocks(int threads, int dynamicSharedBytes) {
    int[] blocks = new int[1];
    gpu.run(
        () ->
            gpu.check(
                JCudaDriver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    blocks, handle, threads, dynamicSharedBytes),
                "asking for the occupancy of " + name));
    return blocks[0];
  }

  Handle handle() {
    return handle;
  }

  /** Lets blocks have {@code bytes} of dynamic shared memory; on the GPU's thread. */
  void allowShared(int bytes) {
    if (bytes > sharedBytes) {
      int rc =
          JCudaDriver.cuFuncSetAttribute(
              handle, CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
      if (rc != 0) {
        throw gpu.failure(rc, "letting %s use %d bytes of shared memory".formatted(name, bytes));
      }
      sharedBytes = bytes;
    }
  }

  /** Finds {@code name} in a module; on the GPU's thread. */
  static Kernel of(Gpu gpu, CUmodule module, String file, String name) {
    Handle handle = new Handle();
    int rc = JCudaDriver.cuModuleGetFunction(handle, module, name);
    gpu.check(rc, "finding the kernel %s in %s.cu".formatted(name, file));
    return new Kernel(gpu, name, handle);
  }

  /** Loads a cubin, or has the driver compile PTX; on the GPU's thread. */
  static CUmodule load(Gpu gpu, String file, byte[] image) {
    CUmodule module = new CUmodule();
    String what =
        "loading the kernels of %s.cu on %s (compute capability %d.%d)"
            .formatted(
                file, gpu.name(), gpu.computeCapability() / 10, gpu.computeCapability() % 10);
    JITOptions options = new JITOptions();
    options.putInt(CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES);
    options.putBytes(CUjit_option.CU_JIT_ERROR_LOG_BUFFER, new byte[LOG_BYTES]);
    int rc;
    try (Arena arena = Arena.ofConfined()) {
      HostPointer copy = KernelImage.copy(image, arena).pointer();
      rc = JCudaDriver.cuModuleLoadDataJIT(module, copy, options);
    } catch (GpuException e) {
      throw new GpuException("%s failed: %s".formatted(what, e.getMessage()), e);
    }
    if (rc != 0) {
      String log = readable(options.getBytes(CUjit_option.CU_JIT_ERROR_LOG_BUFFER));
      throw gpu.failure(rc, what + (log.isEmpty() ? "" : " (" + log + ")"));
    }
    return module;
  }

  /** A compiler's log on one line. */
  private static String readable(byte[] log) {
    int end = 0;
    while (end < log.length && log[end] != 0) {
      end++;
    }
    return new String(log, 0, end, StandardCharsets.UTF_8)
        .lines()
        .map(String::strip)
        .filter(line -> !line.isEmpty())
        .collect(Collectors.joining("; "));
  }

  @Override
  public String toString() {
    return name;
  }
}
