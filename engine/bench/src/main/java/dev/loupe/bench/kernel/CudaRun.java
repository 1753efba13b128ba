package dev.loupe.bench.kernel;

import dev.loupe.cuda.ColdTimer;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.LaunchResources;
import dev.loupe.ops.BackendException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** Launches with all that they use on the GPU. */
final class CudaRun implements Candidate.Run {
  private static final int PIECE = 1 << 20; // elements that are brought to the host at once

  private final Gpu gpu;
  private final ColdTimer timer;
  private final List<Runnable> open = new ArrayList<>();
  private @Nullable DeviceBuffer out;
  private @Nullable Runnable work;
  private boolean ours; // all of the work is launches of our kernels
  private Candidate.@Nullable Resources resources;
  private float[] piece = {};
  private long pieceStart;

  CudaRun(Gpu gpu, ColdTimer timer) {
    this.gpu = gpu;
    this.timer = timer;
  }

  /**
   * What to run.
   *
   * @param out its outputs, in the order of {@link Problem#outputs}
   * @param ours whether all of it is launches of our kernels, not cuBLAS's
   */
  void runs(DeviceBuffer out, boolean ours, Runnable work) {
    this.out = out;
    this.ours = ours;
    this.work = work;
  }

  /** An array on the GPU. */
  DeviceBuffer put(Element element, float[] values) {
    DeviceBuffer buffer = empty(element, values.length);
    buffer.upload(values);
    return buffer;
  }

  /** Integers on the GPU. */
  DeviceBuffer put(int... values) {
    DeviceBuffer buffer = empty(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  /** Memory on the GPU. */
  DeviceBuffer empty(Element element, long elements) {
    return keep(gpu.allocate(element, elements), DeviceBuffer::close);
  }

  /** Closes it with this. */
  <T> T keep(T resource, Consumer<T> close) {
    open.add(() -> close.accept(resource));
    return resource;
  }

  private static <T> T there(@Nullable T part) {
    if (part == null) {
      throw new IllegalStateException("nothing was set up to run");
    }
    return part;
  }

  @Override
  public void poison() {
    forget();
    failing(
        gpu,
        () -> {
          there(out).fill((byte) 0xff);
          return null;
        });
  }

  @Override
  public double microseconds() {
    forget();
    Runnable launches = there(work);
    return failing(
        gpu,
        () -> {
          if (ours && resources == null) {
            resources = largest(gpu.resources(launches));
          }
          return timer.microseconds(launches);
        });
  }

  /** Those of the launch that has the most threads, where there are several. */
  private static Candidate.Resources largest(List<LaunchResources> launches) {
    LaunchResources one =
        launches.stream().max(Comparator.comparingLong(LaunchResources::allThreads)).orElseThrow();
    return new Candidate.Resources(
        one.registers(), one.sharedBytes(), one.threads(), one.occupancy());
  }

  private void forget() {
    piece = new float[0];
  }

  @Override
  public float output(long index) {
    if (index < pieceStart || index >= pieceStart + piece.length) {
      DeviceBuffer all = there(out);
      long start = index / PIECE * PIECE;
      int n = (int) Math.min(PIECE, all.elements() - start);
      float[] next = piece.length == n ? piece : new float[n];
      piece = new float[0]; // until it is whole
      failing(
          gpu,
          () -> {
            all.slice(start, n).download(next);
            return null;
          });
      piece = next;
      pieceStart = start;
    }
    return piece[(int) (index - pieceStart)];
  }

  @Override
  public Candidate.@Nullable Resources resources() {
    return resources;
  }

  /** An error that ended the context is the whole comparison's end, any other the candidate's. */
  static <T extends @Nullable Object> T failing(Gpu gpu, Supplier<T> work) {
    try {
      return work.get();
    } catch (GpuException e) {
      if (gpu.isLost()) {
        throw new BackendException(String.valueOf(e.getMessage()));
      }
      throw e;
    }
  }

  @Override
  public void close() {
    open.reversed().forEach(Runnable::run);
    open.clear();
  }
}
