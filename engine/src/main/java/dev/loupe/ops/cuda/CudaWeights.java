package dev.loupe.ops.cuda;

import dev.loupe.cuda.CudaEvent;
import dev.loupe.cuda.CudaStream;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.PointwiseKernels;
import dev.loupe.cuda.kernels.WeightKernels;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Brings the weights of a checkpoint to the device as the kernels want them, matrices as [out, in]
 * in the element that was asked for: a few megabytes at a time go there as the checkpoint gives
 * them and are transposed and converted on the device, so no second copy is ever whole.
 *
 * <p>Pieces take turns in a few slots. The host copies a piece from the checkpoint to pinned
 * memory; a stream of its own copies it on to the device; a kernel on the GPU's own stream converts
 * it. Each waits for the one before it by an event, so that the host reads a piece while the one
 * before it is copied and the one before that converted. Where the driver pins no memory, the host
 * waits for each copy.
 */
final class CudaWeights implements AutoCloseable {
  /** Pieces that are on their way at a time. */
  static final int SLOTS = 4;

  private static final int CHUNK = 1 << 20; // elements

  /** What one piece at a time passes through. */
  private static final class Slot {
    final CudaEvent copied; // from the pinned memory
    final CudaEvent converted; // from the device's
    @Nullable HostBuffer host;
    @Nullable DeviceBuffer device;

    Slot(CudaEvent copied, CudaEvent converted) {
      this.copied = copied;
      this.converted = converted;
    }
  }

  private final Gpu gpu;
  private final CudaArena arena; // of the slots
  private final WeightKernels kernels;
  private final PointwiseKernels pointwise;
  private final CudaStream copying;
  private final List<Slot> slots = new ArrayList<>();
  private boolean pins = true;
  private int turn;

  /** Most bytes of a piece. */
  static long pieceBytes(Gpt2Config config) {
    long widest = Math.max(3L * config.nEmbd(), config.nInner());
    return Math.max(CHUNK, Int8Weights.GROUP * widest) * Float.BYTES;
  }

  CudaWeights(CudaOps ops) {
    gpu = ops.gpu();
    arena = new CudaArena(ops);
    try {
      kernels = new WeightKernels(gpu);
      pointwise = new PointwiseKernels(gpu);
      copying = arena.own(gpu.sideStream());
      for (int i = 0; i < SLOTS; i++) {
        slots.add(new Slot(arena.own(gpu.mark()), arena.own(gpu.mark())));
      }
    } catch (RuntimeException e) {
      arena.close();
      throw e;
    }
  }

  /**
   * Uploads the weight of a Linear.
   *
   * @param stored [in, out]
   * @param to [out, in]
   */
  void uploadWeight(StoredTensor stored, LinearMap to) {
    int rows = rows(to.outputs(), Int8Weights.GROUP);
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = stored.data(one);
      for (int from = 0; from < to.in(); from += rows) {
        int first = from;
        int n = Math.min(rows, to.in() - first);
        bring(
            stored.dtype(),
            data,
            (long) first * to.outputs(),
            (long) n * to.outputs(),
            piece -> {
              if (to.scales() == null) {
                kernels.repack(piece, first, n, to);
              } else {
                kernels.quantise(piece, first, n, to);
              }
            });
      }
    }
  }

  /** Uploads a table, in rows as the checkpoint has it. */
  void uploadTable(StoredTensor stored, DeviceBuffer to) {
    long elements = stored.elements();
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = stored.data(one);
      for (long from = 0; from < elements; from += CHUNK) {
        long at = from;
        long n = Math.min(CHUNK, elements - at);
        bring(stored.dtype(), data, at, n, piece -> pointwise.convert(piece, to.slice(at, n), n));
      }
    }
  }

  /** Uploads a table as int8 with scales along its rows. */
  void quantiseTable(StoredTensor stored, LinearMap to) {
    int rows = rows(to.in(), 1);
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = stored.data(one);
      for (int from = 0; from < to.outputs(); from += rows) {
        int first = from;
        int n = Math.min(rows, to.outputs() - first);
        bring(
            stored.dtype(),
            data,
            (long) first * to.in(),
            (long) n * to.in(),
            piece -> kernels.quantiseTable(piece, first, n, to));
      }
    }
  }

  /** Uploads a vector as f32. */
  void uploadVector(StoredTensor stored, DeviceBuffer to) {
    float[] values = new float[Math.toIntExact(stored.elements())];
    stored.read(0, values, 0, values.length);
    bring(
        DType.F32,
        MemorySegment.ofArray(values),
        0,
        values.length,
        piece -> to.copyFrom(piece, values.length));
  }

  /** Rows of {@code width} that fill a chunk, in whole groups. */
  private static int rows(int width, int group) {
    return Math.max(1, CHUNK / width / group) * group;
  }

  /**
   * Brings elements to the device and puts what {@code convert} launches behind their copy.
   *
   * @param data elements of {@code dtype}
   * @param convert gets them where they are until it is done, as f32 if they were f64
   */
  private void bring(
      DType dtype, MemorySegment data, long first, long count, Consumer<DeviceBuffer> convert) {
    Element element = element(dtype);
    long bytes = count * element.bytes();
    Slot slot = slots.get(turn++ % SLOTS);
    slot.copied.await(); // the piece before it, from the pinned memory
    DeviceBuffer device = deviceOf(slot, bytes).as(element).slice(0, count);
    HostBuffer host = hostOf(slot, bytes);
    if (host == null) {
      uploadPlainly(dtype, data, first, count, device);
      gpu.run(
          () -> {
            convert.accept(device);
            slot.converted.set();
          });
      return;
    }
    if (dtype == DType.F64) {
      float[] narrow = narrowed(data, first, count);
      MemorySegment.copy(narrow, 0, host.memory(), ValueLayout.JAVA_FLOAT, 0, narrow.length);
    } else {
      MemorySegment.copy(data, first * dtype.bytes(), host.memory(), 0, bytes);
    }
    gpu.run(
        () -> {
          copying.run(
              () -> {
                slot.converted.hold();
                host.copyTo(device, count);
                slot.copied.set();
              });
          slot.copied.hold();
          convert.accept(device);
          slot.converted.set();
        });
  }

  /** A copy that waits for what was launched before, and for which the host waits. */
  private static void uploadPlainly(
      DType dtype, MemorySegment data, long first, long count, DeviceBuffer to) {
    if (dtype == DType.F64) {
      to.upload(narrowed(data, first, count));
    } else {
      to.upload(data.asSlice(first * dtype.bytes(), count * dtype.bytes()));
    }
  }

  private static float[] narrowed(MemorySegment data, long first, long count) {
    float[] narrow = new float[Math.toIntExact(count)];
    DType.F64.decode(data, first * DType.F64.bytes(), narrow, 0, narrow.length);
    return narrow;
  }

  /** A slot's device memory, at least so large; a very wide matrix has larger pieces. */
  private DeviceBuffer deviceOf(Slot slot, long bytes) {
    DeviceBuffer device = slot.device;
    if (device == null || device.bytes() < bytes) {
      if (device != null) {
        slot.converted.await();
        device.close();
      }
      device = arena.own(gpu.allocate(Element.F32, Math.ceilDiv(bytes, Float.BYTES)));
      slot.device = device;
    }
    return device;
  }

  /** Likewise its pinned memory, which no copy reads now; null where the driver pins none. */
  private @Nullable HostBuffer hostOf(Slot slot, long bytes) {
    HostBuffer host = slot.host;
    if (!pins || (host != null && host.bytes() >= bytes)) {
      return pins ? host : null;
    }
    if (host != null) {
      host.close();
      slot.host = null;
    }
    try {
      host = arena.own(gpu.pin(bytes));
    } catch (GpuException e) {
      if (gpu.isLost()) {
        throw e;
      }
      pins = false;
      return null;
    }
    slot.host = host;
    return host;
  }

  private static Element element(DType dtype) {
    return switch (dtype) {
      case F32, F64 -> Element.F32;
      case F16 -> Element.F16;
      case BF16 -> Element.BF16;
    };
  }

  /**
   * Waits until all is on the device, and frees what it passed through.
   *
   * @throws GpuException if some of it failed
   */
  @Override
  public void close() {
    arena.close();
  }
}
