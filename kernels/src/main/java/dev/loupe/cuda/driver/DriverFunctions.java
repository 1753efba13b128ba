package dev.loupe.cuda.driver;

import java.lang.foreign.SymbolLookup;
import java.util.List;
import java.util.Optional;

/**
 * The driver's functions that a run calls, by their names in its library. They are looked up before
 * the first of them is called: JCuda binds each at its first call, and the process would end there
 * if the driver lacked it.
 */
public final class DriverFunctions {
  static final List<String> NAMES =
      List.of(
          "cuCtxCreate_v2",
          "cuCtxDestroy_v2",
          "cuCtxSynchronize",
          "cuDeviceGet",
          "cuDeviceGetAttribute",
          "cuDeviceTotalMem_v2",
          "cuEventCreate",
          "cuEventDestroy_v2",
          "cuEventElapsedTime",
          "cuEventRecord",
          "cuEventSynchronize",
          "cuFuncGetAttribute",
          "cuFuncSetAttribute",
          "cuGetErrorName",
          "cuGetErrorString",
          "cuGraphDestroy",
          "cuGraphExecDestroy",
          "cuGraphInstantiateWithFlags",
          "cuGraphLaunch",
          "cuInit",
          "cuLaunchKernel",
          "cuMemAlloc_v2",
          "cuMemFreeHost",
          "cuMemFree_v2",
          "cuMemGetInfo_v2",
          "cuMemHostAlloc",
          "cuMemHostGetDevicePointer_v2",
          "cuMemcpyDtoDAsync_v2",
          "cuMemcpyDtoHAsync_v2",
          "cuMemcpyDtoH_v2",
          "cuMemcpyHtoDAsync_v2",
          "cuMemcpyHtoD_v2",
          "cuMemsetD8_v2",
          "cuModuleGetFunction",
          "cuModuleLoadDataEx",
          "cuModuleUnload",
          "cuOccupancyMaxActiveBlocksPerMultiprocessor",
          "cuStreamBeginCapture_v2",
          "cuStreamCreate",
          "cuStreamDestroy_v2",
          "cuStreamEndCapture",
          "cuStreamWaitEvent");

  private DriverFunctions() {}

  /** One that {@code driver} lacks; empty if it has them all. */
  public static Optional<String> missing(SymbolLookup driver) {
    return NAMES.stream().filter(name -> driver.find(name).isEmpty()).findFirst();
  }
}
