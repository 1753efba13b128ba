package dev.loupe.cuda.selftest;

import dev.loupe.cuda.CacheFile;
import dev.loupe.cuda.ColdTimer;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.AttentionMapKernels;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.Segments;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * Times the right variants of the families where several do the same work, on the shapes of a
 * model, and keeps that for later processes. Caches are cold, as they are in a pass.
 *
 * <p>On the emulator nothing is timed, and the variants stay in the order of their design.
 */
public final class KernelTimer {
  /** What all of it may take. */
  private static final Duration LIMIT = Duration.ofSeconds(2);

  private static final int SAMPLES = 3;
  private static final int TOP = 8; // ranks of the statistics

  private final Gpu gpu;
  private final KernelVerdicts verdicts;
  private final ModelShape shape;
  private final @Nullable CublasLinear cublas;
  private final ColdTimer timer;
  private final Duration limit;
  private final long start = System.nanoTime();
  private final Map<KernelTimes.Key, Double> times = new HashMap<>();

  private KernelTimer(
      Gpu gpu,
      KernelVerdicts verdicts,
      ModelShape shape,
      @Nullable CublasLinear cublas,
      ColdTimer timer,
      Duration limit) {
    this.gpu = gpu;
    this.verdicts = verdicts;
    this.shape = shape;
    this.cublas = cublas;
    this.timer = timer;
    this.limit = limit;
  }

  /**
   * The times that are known, or new ones. They are not kept where a card has no room for what is
   * timed, and nothing is timed then.
   *
   * @param cublas also timed, for prompts; null for none
   * @throws GpuException if the card fails
   */
  public static KernelTimes of(
      Gpu gpu, KernelVerdicts verdicts, ModelShape shape, @Nullable CublasLinear cublas) {
    if (verdicts.card().isEmulated()) {
      return KernelTimes.NONE;
    }
    List<String> of = List.of("times 1", shape.toString(), cublas == null ? "" : "cublas");
    @Nullable CacheFile file = null;
    try {
      file = CacheFile.of(verdicts.card(), "times", of);
      Optional<KernelTimes> known = file.lines().flatMap(KernelTimes::of);
      if (known.isPresent()) {
        return known.get();
      }
    } catch (IOException e) {
      // first contact has said that nothing can be kept
    }
    KernelTimes times;
    try {
      times = measure(gpu, verdicts, shape, cublas, ColdTimer.USUAL_BYTES, LIMIT);
    } catch (GpuMemoryException e) {
      return KernelTimes.NONE;
    }
    try {
      if (file != null) {
        file.write(times.lines());
      }
    } catch (IOException e) {
      // likewise
    }
    return times;
  }

  /**
   * Times now.
   *
   * @param coldBytes what {@link ColdTimer} copies
   * @param limit after which nothing more is begun
   */
  static KernelTimes measure(
      Gpu gpu,
      KernelVerdicts verdicts,
      ModelShape shape,
      @Nullable CublasLinear cublas,
      long coldBytes,
      Duration limit) {
    try (ColdTimer timer = new ColdTimer(gpu, coldBytes);
        SelfTestInputs buffers = new SelfTestInputs(gpu)) {
      KernelTimer run = new KernelTimer(gpu, verdicts, shape, cublas, timer, limit);
      run.products(buffers);
      run.attention(buffers);
      run.norms(buffers);
      return new KernelTimes(run.times);
    }
  }

  private static final int MOST_ROWS = KernelTimes.ROWS.getLast();

  private DeviceBuffer random(SelfTestInputs buffers, Element element, long n) {
    DeviceBuffer buffer = buffers.empty(element, n);
    ColdTimer.fillRandom(buffer, new Random(1));
    return buffer;
  }

  /** The largest product of a layer, into the MLP. */
  private void products(SelfTestInputs buffers) {
    Element element = shape.element();
    DeviceBuffer x = random(buffers, element, (long) MOST_ROWS * shape.width());
    DeviceBuffer w = random(buffers, element, (long) shape.width() * shape.inner());
    DeviceBuffer y = buffers.empty(element, (long) MOST_ROWS * shape.inner());
    LinearMap map = new LinearMap(w, null, null, shape.width(), shape.inner());
    LinearEpilogue epilogue = new LinearEpilogue.Output(y, KernelActivation.GELU_NEW);
    LinearKernels kernels = new LinearKernels(gpu);
    if (cublas != null) {
      LinearCall call = cublas.prepare(map, x, epilogue);
      each(Trial.CUBLAS, element, rows -> () -> call.run(rows));
    }
    for (Variant v : right(LinearKernels.VARIANTS, element)) {
      if (kernels.reason(v, element, shape.width()).isEmpty()) {
        LinearCall call = kernels.prepare(v, map, x, epilogue);
        each(v, element, rows -> () -> call.run(rows));
      }
    }
  }

  /** Attention of a prompt of so many tokens, its maps, and their statistics. */
  private void attention(SelfTestInputs buffers) {
    Element element = shape.element();
    CacheShape cache = new CacheShape(1, shape.heads(), MOST_ROWS, shape.headSize());
    float scale = (float) (1 / Math.sqrt(shape.headSize()));
    DeviceBuffer qkv = random(buffers, element, 3L * MOST_ROWS * shape.width());
    DeviceBuffer k = random(buffers, element, cache.elements());
    DeviceBuffer v = random(buffers, element, cache.elements());
    DeviceBuffer y = buffers.empty(element, (long) MOST_ROWS * shape.width());
    DeviceBuffer lse = random(buffers, Element.F32, (long) MOST_ROWS * shape.heads());
    DeviceBuffer head = buffers.put(0);
    DeviceBuffer map = buffers.empty(Element.F32, (long) MOST_ROWS * MOST_ROWS);
    DeviceBuffer keys = buffers.empty(Element.I32, (long) MOST_ROWS * TOP);
    DeviceBuffer p = buffers.empty(Element.F32, (long) MOST_ROWS * TOP);
    AttentionMapKernels.Statistics statistics =
        new AttentionMapKernels.Statistics(
            map.slice(0, MOST_ROWS), map.slice(MOST_ROWS, MOST_ROWS), keys, p, TOP);
    AttentionMapKernels maps = new AttentionMapKernels(gpu, cache, element, element);
    try (AttentionKernels kernels = new AttentionKernels(gpu, cache, element);
        Segments segments = new Segments(gpu, 1)) {
      AttentionKernels.Buffers layer = new AttentionKernels.Buffers(qkv, k, v, y, lse);
      AttentionMapKernels.Source source =
          new AttentionMapKernels.Source(qkv, k, lse, segments.buffer(), 1, true, scale);
      for (Variant variant : right(AttentionKernels.VARIANTS, element)) {
        if (kernels.reason(variant).isEmpty()) {
          each(
              variant,
              element,
              rows -> {
                segments.set(List.of(new Segment(0, rows, 0, 0)));
                return () -> kernels.run(variant, segments, true, scale, layer);
              });
        }
      }
      for (Variant variant : right(AttentionMapKernels.MAPS, element)) {
        each(
            variant,
            element,
            rows -> {
              segments.set(List.of(new Segment(0, rows, 0, 0)));
              return () ->
                  maps.map(
                      variant,
                      source,
                      new AttentionMapKernels.Selection(head, 1, 0, rows),
                      AttentionMapKernels.Cells.PROBABILITIES,
                      new AttentionMapKernels.Layout.Dense(MOST_ROWS),
                      map);
            });
      }
      for (Variant variant : right(AttentionMapKernels.STATISTICS, element)) {
        each(
            variant,
            element,
            rows -> {
              segments.set(List.of(new Segment(0, rows, 0, 0)));
              AttentionMapKernels.Selection want =
                  new AttentionMapKernels.Selection(head, 1, 0, rows);
              return () -> maps.statistics(variant, source, want, statistics);
            });
      }
    }
  }

  /** Norms of the residual stream, which is f32. */
  private void norms(SelfTestInputs buffers) {
    DeviceBuffer x = random(buffers, Element.F32, (long) MOST_ROWS * shape.width());
    DeviceBuffer gamma = random(buffers, Element.F32, shape.width());
    DeviceBuffer y = buffers.empty(shape.element(), (long) MOST_ROWS * shape.width());
    LayerNormKernels kernels = new LayerNormKernels(gpu);
    for (Variant v : right(LayerNormKernels.VARIANTS, Element.F32)) {
      if (kernels.reason(v, shape.width()).isEmpty()) {
        each(
            v,
            Element.F32,
            rows -> () -> kernels.normalize(v, x, gamma, gamma, y, rows, shape.width(), 1e-5f));
      }
    }
  }

  /** Those that may be used, the newest idea first: it has its time if not all have. */
  private List<Variant> right(List<Variant> variants, Element element) {
    return variants.reversed().stream().filter(v -> verdicts.isRight(v, element)).toList();
  }

  /** Makes a call with so many rows, which goes on the stream whenever it is run. */
  private interface Work {
    Runnable of(int rows);
  }

  private void each(Variant variant, Element element, Work work) {
    for (int rows : KernelTimes.ROWS) {
      if (System.nanoTime() - start > limit.toNanos()) {
        return;
      }
      Runnable call = work.of(rows);
      call.run(); // once without being timed: loads it
      double least = Double.MAX_VALUE;
      for (int i = 0; i < SAMPLES; i++) {
        least = Math.min(least, timer.microseconds(call));
      }
      times.put(new KernelTimes.Key(variant.family(), variant.name(), element, rows), least);
    }
  }
}
