package dev.loupe.cuda;

import dev.loupe.cuda.driver.ComputeCache;
import dev.loupe.cuda.driver.ImageSource;
import dev.loupe.cuda.driver.KernelCompiler;
import dev.loupe.cuda.driver.PtxText;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import jcuda.driver.CUmodule;
import jcuda.driver.JCudaDriver;

/**
 * The modules of a GPU and their kernels: of cubins one for each source, of PTX one for each
 * kernel, because the driver compiles a module whole and a run needs few of a source's kernels. All
 * on the GPU's thread.
 */
final class LoadedModules {
  private final Gpu gpu;
  private final ImageSource images;
  private final Map<String, byte[]> texts = new HashMap<>(); // PTX of a source
  private final Map<String, CUmodule> modules = new HashMap<>();
  private final Map<String, Kernel> kernels = new HashMap<>();
  private int compiled;
  private long nanos;

  LoadedModules(Gpu gpu, ImageSource images) {
    this.gpu = gpu;
    this.images = images;
  }

  /** Loads the cubin of a source, or reads its PTX, unless that is done. */
  void load(String file) {
    if (modules.containsKey(file) || texts.containsKey(file)) {
      return;
    }
    byte[] image = images.image(file, gpu.computeCapability(), gpu.driverVersion());
    if (PtxText.is(image)) {
      texts.put(file, image);
    } else {
      modules.put(file, Kernel.load(gpu, file, image));
    }
  }

  /** The kernel {@code name} of {@code file}; loaded on first use, then kept. */
  Kernel kernel(String file, String name) {
    Kernel known = kernels.get(name);
    if (known == null) {
      known = Kernel.of(gpu, with(file, name), file, name);
      kernels.put(name, known);
    }
    return known;
  }

  /** Names of the kernels that were asked for so far. */
  Set<String> kernels() {
    return Set.copyOf(kernels.keySet());
  }

  /** The module that has kernel {@code name} of {@code file}. */
  private CUmodule with(String file, String name) {
    load(file);
    CUmodule whole = modules.get(file);
    return whole != null ? whole : compile(file, name, Objects.requireNonNull(texts.get(file)));
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
    modules.values().forEach(m -> gpu.released(JCudaDriver.cuModuleUnload(m), "freeing kernels"));
  }
}
