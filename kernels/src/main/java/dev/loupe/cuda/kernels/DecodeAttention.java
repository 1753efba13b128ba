package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import java.util.ArrayList;
import java.util.List;

/**
 * Attention for rows that each are one query of a sequence: y = softmax(scale q K^T) V per head,
 * the keys split into blocks of 128 (flash-decoding, Dao et al. 2023) and joined in order.
 *
 * <p>The bits of a row depend on its query, its keys and the variant alone: not on the other rows,
 * how many there are, or for how many keys the launch has room.
 *
 * <p>A row of no keys is a free slot of a batch: its y is 0 and its lse -infinity. A row whose
 * sequence or number of keys lies outside the cache reads nothing, and its y and lse are NaN.
 */
public final class DecodeAttention implements AutoCloseable {
  static final String FILE = "attention_decode";

  /** Keys of one block; part of the result, since sums are split there. */
  static final int SPLIT = 128;

  /** Rows of this family in the {@link KernelCatalogue}. */
  static final List<Variant> VARIANTS =
      List.of(
          new Variant(
              FILE,
              "v0",
              "one thread for each row, head and element of y, over all keys twice",
              "head size a multiple of 8 up to 128",
              AttentionArguments.FLOATS,
              75),
          new Variant(
              FILE,
              "v1",
              "split KV: a block for each row, head and 128 keys; the last to end joins them in order",
              "head size a multiple of 8 up to 128",
              AttentionArguments.FLOATS,
              75));

  private static final List<Variant> BEST_FIRST = VARIANTS.reversed();
  private static final int MAX_ROWS = 65535;

  private static final Parameter[] PLAIN_PARAMETERS = {
    POINTER, // qkv
    POINTER, // K
    POINTER, // V
    POINTER, // sequence
    POINTER, // keys
    POINTER, // y
    POINTER, // lse
    INT, // splits
    INT, // element of qkv and y
    INT, // element of K and V
    INT, // D
    INT, // sequences
    INT, // capacity
    FLOAT // scale
  };
  private static final Parameter[] SPLIT_PARAMETERS = {
    POINTER, // qkv
    POINTER, // K
    POINTER, // V
    POINTER, // sequence
    POINTER, // keys
    POINTER, // partial
    POINTER, // ml
    POINTER, // arrived
    POINTER, // y
    POINTER, // lse
    INT, // element of qkv and y
    INT, // D
    INT, // sequences
    INT, // capacity
    FLOAT // scale
  };

  private final Gpu gpu;
  private final CacheShape shape;
  private final Element activations;
  private final Element cache;
  private final int maxRows;
  private final Computing computing;

  /**
   * @param shape of the keys, and of the values, of a layer
   * @param activations element of qkv and y: f32, f16 or bf16
   * @param cache element of the keys and values: f32, f16 or bf16
   * @param maxRows most rows of a launch; memory for their partial results is taken here
   * @throws IllegalArgumentException if the kernels do not come in such elements or sizes
   * @throws GpuException if the kernels are missing or memory runs out
   */
  public DecodeAttention(
      Gpu gpu, CacheShape shape, Element activations, Element cache, int maxRows) {
    AttentionArguments.element("activations", activations);
    AttentionArguments.element("KV cache", cache);
    AttentionArguments.range("rows of a decoding step", maxRows, 1, MAX_ROWS);
    this.gpu = gpu;
    this.shape = shape;
    this.activations = activations;
    this.cache = cache;
    this.maxRows = maxRows;
    Variant variant = gpu.choose(BEST_FIRST, cache, maxRows);
    computing = variant.isPlain() ? new Plain(variant) : new Split(variant);
  }

  /**
   * The keys and values of one layer.
   *
   * @param k [S, H, capacity, D]
   * @param v [S, H, capacity, D]
   */
  public record Cache(DeviceBuffer k, DeviceBuffer v) {}

  /**
   * The rows of a step.
   *
   * @param qkv [R, 3C]; q is read
   * @param sequence I32 [R], the row's sequence in the cache
   * @param keys I32 [R], how many keys of it the row attends to, its own among them; 0 for a free
   *     slot
   * @param rows R, up to the most that was announced
   * @param maxKeys at least as large as each of keys: how many splits are launched. May stay at the
   *     capacity; blocks without keys end at once
   */
  public record Rows(
      DeviceBuffer qkv, DeviceBuffer sequence, DeviceBuffer keys, int rows, int maxKeys) {}

  /**
   * Puts one layer's attention on the stream.
   *
   * @param scale factor of q.k, positive
   * @param y [R, C], written
   * @param lse F32 [R, H], written: natural logarithm of the sum of exp(scale q.k)
   * @throws IllegalArgumentException if a buffer is too small, closed or of another element
   */
  public void run(Rows rows, Cache kv, float scale, DeviceBuffer y, DeviceBuffer lse) {
    check(rows, kv, scale, y, lse);
    if (rows.rows() == 0) {
      return;
    }
    computing.run(rows, kv, scale, y, lse);
  }

  /** One of the variants. */
  private interface Computing extends AutoCloseable {
    void run(Rows rows, Cache kv, float scale, DeviceBuffer y, DeviceBuffer lse);

    @Override
    void close();
  }

  private final class Plain implements Computing {
    private final Launch launch;

    Plain(Variant variant) {
      launch = new Launch(gpu.kernel(FILE, variant.kernel(cache)), PLAIN_PARAMETERS).waits();
    }

    @Override
    public void run(Rows rows, Cache kv, float scale, DeviceBuffer y, DeviceBuffer lse) {
      launch
          .set(0, rows.qkv())
          .set(1, kv.k())
          .set(2, kv.v())
          .set(3, rows.sequence())
          .set(4, rows.keys())
          .set(5, y)
          .set(6, lse)
          .set(7, splits(rows.maxKeys()))
          .set(8, activations.code())
          .set(9, cache.code())
          .set(10, shape.headSize())
          .set(11, shape.sequences())
          .set(12, shape.capacity())
          .set(13, scale)
          .run(shape.heads(), rows.rows(), 1, Math.ceilDiv(shape.headSize(), 32) * 32, 1, 0);
    }

    @Override
    public void close() {}
  }

  private final class Split implements Computing {
    private final DeviceBuffer partial; // [maxRows, H, splits, D], unnormalised
    private final DeviceBuffer ml; // [maxRows, H, splits, 2]: maximum of q.k, sum of weights
    private final DeviceBuffer arrived; // [maxRows, H]: splits that are done; 0 between launches
    private final Launch launch;

    Split(Variant variant) {
      launch = new Launch(gpu.kernel(FILE, variant.kernel(cache)), SPLIT_PARAMETERS).waits();
      long rows = Math.multiplyExact((long) maxRows, shape.heads());
      long blocks = Math.multiplyExact(rows, (long) splits(shape.capacity()));
      List<DeviceBuffer> made = new ArrayList<>();
      try {
        made.add(gpu.allocate(Element.F32, Math.multiplyExact(blocks, shape.headSize())));
        made.add(gpu.allocate(Element.F32, 2 * blocks));
        made.add(gpu.allocate(Element.I32, rows));
        made.getLast().fill((byte) 0);
      } catch (GpuException e) {
        made.forEach(DeviceBuffer::close);
        throw e;
      }
      partial = made.get(0);
      ml = made.get(1);
      arrived = made.get(2);
    }

    @Override
    public void run(Rows rows, Cache kv, float scale, DeviceBuffer y, DeviceBuffer lse) {
      int d = shape.headSize();
      launch
          .set(0, rows.qkv())
          .set(1, kv.k())
          .set(2, kv.v())
          .set(3, rows.sequence())
          .set(4, rows.keys())
          .set(5, partial)
          .set(6, ml)
          .set(7, arrived)
          .set(8, y)
          .set(9, lse)
          .set(10, activations.code())
          .set(11, d)
          .set(12, shape.sequences())
          .set(13, shape.capacity())
          .set(14, scale);
      int shared = SPLIT / 32 * (d + 2) * Float.BYTES;
      launch.run(splits(rows.maxKeys()), shape.heads(), rows.rows(), SPLIT, 1, shared);
    }

    @Override
    public void close() {
      partial.close();
      ml.close();
      arrived.close();
    }
  }

  private void check(Rows rows, Cache kv, float scale, DeviceBuffer y, DeviceBuffer lse) {
    AttentionArguments.scale(scale);
    AttentionArguments.range("rows of a decoding step", rows.rows(), 0, maxRows);
    AttentionArguments.range("most keys of a row", rows.maxKeys(), 1, shape.capacity());
    long r = rows.rows();
    AttentionArguments.buffer(gpu, "qkv", rows.qkv(), activations, r * 3 * shape.width());
    AttentionArguments.buffer(gpu, "sequence of the rows", rows.sequence(), Element.I32, r);
    AttentionArguments.buffer(gpu, "keys of the rows", rows.keys(), Element.I32, r);
    AttentionArguments.buffer(gpu, "K of the cache", kv.k(), cache, shape.elements());
    AttentionArguments.buffer(gpu, "V of the cache", kv.v(), cache, shape.elements());
    AttentionArguments.buffer(gpu, "y", y, activations, r * shape.width());
    AttentionArguments.buffer(gpu, "lse", lse, Element.F32, r * shape.heads());
  }

  private static int splits(int keys) {
    return (keys - 1) / SPLIT + 1;
  }

  /** Device memory that one takes for partial results: bytes of each allocation. */
  public static List<Long> scratchBytes(CacheShape shape, int maxRows) {
    long rows = (long) maxRows * shape.heads();
    long blocks = rows * splits(shape.capacity());
    return List.of(
        blocks * shape.headSize() * Float.BYTES, blocks * 2 * Float.BYTES, rows * Integer.BYTES);
  }

  /** Frees the memory for partial results. */
  @Override
  public void close() {
    computing.close();
  }
}
