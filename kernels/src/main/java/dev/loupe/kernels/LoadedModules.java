package dev.loupe.kernels;

import java.util.HashMap;
import java.util.Map;
import jcuda.driver.CUmodule;
import jcuda.driver.JCudaDriver;

/**
 * The modules of a GPU: of cubins one for each source, of PTX one for each kernel, because the
 * driver compiles a module whole and a run needs few of a source's kernels. All on the GPU's
 * thread.
 */
final class LoadedModules {
  private final Gpu gpu;
  private final ImageSource images;
  private final Map<String, byte[]> texts = new HashMap<>(); // PTX of a source
  private final Map<String, CUmodule> modules = new HashMap<>();
  private int compiled;
  private long nanos;

  LoadedModules(Gpu gpu, ImageSource images) {
    this.gpu = gpu;
    this.images = images;
  }

  /** The module that has kernel {@code name} of {@code file}. */
  CUmodule with(String file, String name) {
    CUmodule whole = modules.get(file);
    if (whole != null) {
      return whole;
    }
    byte[] text = texts.get(file);
    if (text == null) {
      byte[] image = images.image(file, gpu.computeCapability(), gpu.driverVersion());
      if (!PtxText.is(image)) {
        CUmodule module = Kernel.load(gpu, file, image);
        modules.put(file, module);
        return module;
      }
      texts.put(file, image);
      text = image;
    }
    return compile(file, name, text);
  }

  private CUmodule compile(String file, String name, byte[] text) {
    KernelCompiler.Listener listener = KernelCompiler.listener();
    listener.compiling(name, ++compiled, nanos / 1e6, ComputeCache.isKept());
    long began = System.nanoTime();
    try {
      CUmodule module = Kernel.load(gpu, file, PtxText.only(text, name));
      modules.put(name, module);
      return module;
    } finally {
      nanos += System.nanoTime() - began;
      listener.compiled();
    }
  }

  void unload() {
    modules.values().forEach(JCudaDriver::cuModuleUnload);
  }
}
