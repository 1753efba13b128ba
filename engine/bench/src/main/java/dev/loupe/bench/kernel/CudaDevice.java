package dev.loupe.bench.kernel;

import dev.loupe.cuda.ColdTimer;
import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * An NVIDIA GPU, or the emulator of one. Its candidates are rows of the {@link KernelCatalogue},
 * and cuBLAS where it is found. An error that ends the GPU's context is a {@link BackendException},
 * from whichever candidate it comes.
 */
public final class CudaDevice implements Device {
  private static final String COMPILED_IN = "its block size is compiled in";
  private static final List<Integer> BLOCK_SIZES = List.of(64, 128, 256, 512, 1024);
  private static final Set<String> ANY_BLOCK_SIZE = Set.of("layernorm", "sample", "pointwise");
  private static final int PRODUCT = 8192; // rows and columns of the large product
  private static final int EMULATED_PRODUCT = 64;
  private static final int EMULATED_COPY = 1 << 20; // bytes

  private final Gpu gpu;
  private final boolean emulated;
  private final ColdTimer timer;
  private final LinearKernels linear;
  private final @Nullable Cublas cublas;
  private final @Nullable CublasLinear cublasLinear;
  private final String cublasFails; // why, where it is found; else empty

  private CudaDevice(Gpu gpu) {
    this.gpu = gpu;
    gpu.images(); // what is missing or damaged shows here, not at the first launch
    emulated = gpu.name().contains("emulator");
    timer = new ColdTimer(gpu, emulated ? EMULATED_COPY : ColdTimer.USUAL_BYTES);
    linear = new LinearKernels(gpu);
    Cublas found = null;
    String fails = "";
    try {
      found = Cublas.open(gpu).orElse(null);
    } catch (GpuException e) {
      fails = String.valueOf(e.getMessage());
    }
    cublas = found;
    cublasLinear = found == null ? null : new CublasLinear(gpu, found);
    cublasFails = fails;
  }

  /**
   * Opens a GPU.
   *
   * @param number in the driver's order, from 0
   * @throws BackendException if there is no such GPU, or it can't run the kernels
   */
  public static CudaDevice open(int number) {
    Gpu gpu = null;
    try {
      gpu = Gpu.open(number);
      return new CudaDevice(gpu);
    } catch (GpuException e) {
      if (gpu != null) {
        gpu.close();
      }
      throw new BackendException(String.valueOf(e.getMessage()));
    }
  }

  Gpu gpu() {
    return gpu;
  }

  ColdTimer timer() {
    return timer;
  }

  /** Of a candidate that {@link #candidates} has listed. */
  CublasLinear cublas() {
    return Optional.ofNullable(cublasLinear).orElseThrow();
  }

  @Override
  public String backend() {
    return "cuda";
  }

  @Override
  public String name() {
    return gpu.name();
  }

  @Override
  public boolean emulated() {
    return emulated;
  }

  /** How weights, or where there are none activations, are kept. */
  static Element element(Precision precision) {
    return switch (precision) {
      case F32 -> Element.F32;
      case F16 -> Element.F16;
      case BF16 -> Element.BF16;
      case INT8 -> Element.I8;
    };
  }

  @Override
  public List<Candidate> candidates(Operation operation, Precision precision) {
    return rows(operation, precision)
        .<Candidate>map(v -> new CudaCandidate(this, v, precision, 0, fails(v)))
        .toList();
  }

  @Override
  public List<Candidate> sweep(Operation operation, Precision precision) {
    List<Candidate> all = new ArrayList<>();
    rows(operation, precision)
        .forEach(
            v -> {
              if (ANY_BLOCK_SIZE.contains(v.family())) {
                BLOCK_SIZES.forEach(n -> all.add(new CudaCandidate(this, v, precision, n, "")));
              } else {
                all.add(new CudaCandidate(this, v, precision, 0, COMPILED_IN));
              }
            });
    return all;
  }

  private String fails(Variant variant) {
    return variant.family().equals(CudaCandidate.CUBLAS) ? cublasFails : "";
  }

  private Stream<Variant> rows(Operation operation, Precision precision) {
    Stream<Variant> all =
        switch (operation) {
          case ATTENTION -> family("attention");
          case LINEAR ->
              Stream.of(family("linear"), family("gemv"), cublasRow()).flatMap(rows -> rows);
          case LAYERNORM -> family("layernorm");
          case SOFTMAX -> family("sample").filter(v -> v.name().equals("softmax"));
          case GELU -> family("pointwise").filter(v -> v.name().endsWith("activate"));
          case MAP -> family("attention_map");
          case DECODE_ATTENTION -> family("attention_decode");
        };
    return all.filter(v -> v.elements().contains(element(precision)));
  }

  private static Stream<Variant> family(String name) {
    return KernelCatalogue.of(name).stream();
  }

  private Stream<Variant> cublasRow() {
    if (cublas == null && cublasFails.isEmpty()) {
      return Stream.of();
    }
    int version = cublas == null ? 0 : cublas.version();
    return Stream.of(
        new Variant(
            CudaCandidate.CUBLAS,
            "cublas",
            "NVIDIA's cuBLAS %d.%d, then a kernel for the bias"
                .formatted(version / 10_000, version / 100 % 100),
            "",
            Set.of(Element.F32, Element.F16, Element.BF16),
            75));
  }

  @Override
  public List<Shape> usualShapes(Operation operation) {
    String text =
        switch (operation) {
          case ATTENTION, DECODE_ATTENTION -> emulated ? "T=64,H=2,D=64" : "T=128..8192,H=12,D=64";
          case MAP -> emulated ? "T=64,H=2,D=64" : "T=256..2048,H=12,D=64";
          case LINEAR -> emulated ? "M=1,16,K=128,N=64" : "M=1,8,64,1024,K=768,N=3072";
          case LAYERNORM -> emulated ? "R=16,C=128" : "R=1,64,1024,8192,C=768";
          case SOFTMAX -> emulated ? "R=16,C=128" : "R=1,64,1024,8192,C=1024";
          case GELU -> emulated ? "R=16,C=128" : "R=1,64,1024,8192,C=3072";
        };
    return Shape.parse(operation, text, List.of());
  }

  /**
   * Bytes of a copy, read and written, and operations of a product of matrices of 8,192 rows and
   * columns, by cuBLAS or the best of our own, whichever is faster; for int8, whose activations are
   * f32, a product in f32.
   */
  @Override
  public Roofline measure(Precision precision) {
    return CudaRun.failing(gpu, () -> new Roofline(timer.copyBytesPerSecond(), product(precision)));
  }

  /** Operations a second. */
  private double product(Precision precision) {
    Element element = precision == Precision.INT8 ? Element.F32 : element(precision);
    int n = emulated ? EMULATED_PRODUCT : PRODUCT;
    while (3L * n * n * element.bytes() > gpu.freeBytes() / 2 && n > EMULATED_PRODUCT) {
      n /= 2;
    }
    int size = n;
    long elements = (long) n * n;
    try (DeviceBuffer x = gpu.allocate(element, elements);
        DeviceBuffer w = gpu.allocate(element, elements);
        DeviceBuffer y = gpu.allocate(element, elements)) {
      Random random = new Random(2);
      ColdTimer.fillRandom(x, random);
      ColdTimer.fillRandom(w, random);
      LinearMap map = new LinearMap(w, null, null, n, n);
      LinearCall call =
          linear.prepare(
              linear.variantFor(map, size),
              map,
              x,
              new LinearEpilogue.Output(y, KernelActivation.NONE));
      double time = ColdTimer.best(() -> 1e3 * gpu.milliseconds(() -> call.run(size)));
      Cublas other = cublas;
      if (other != null) {
        Runnable product = () -> other.linear(x, w, y, size, size, size, false);
        time = Math.min(time, ColdTimer.best(() -> 1e3 * gpu.milliseconds(product)));
      }
      return 2e6 * elements * n / time;
    }
  }

  /** Frees all that is left on the GPU. */
  @Override
  public void close() {
    try (gpu;
        timer) {
      if (cublasLinear != null && !gpu.isLost()) {
        cublasLinear.close();
      }
    }
  }
}
