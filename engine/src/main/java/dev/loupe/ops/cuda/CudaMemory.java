package dev.loupe.ops.cuda;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.DecodeAttention;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.ops.SessionSize;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Device memory that a model or a session will take, known before any of it is allocated.
 *
 * <p>Every allocation counts as what the driver takes for it: a multiple of 512 bytes, or of 2 MiB,
 * its granule, if it is larger than 1 MiB. Beside all that is planned a margin stays free, {@link
 * #margin}.
 *
 * @param parts who needs what
 */
record CudaMemory(List<Part> parts) {
  /**
   * One who needs memory.
   *
   * @param what for people, in a few words
   */
  record Part(String what, long bytes) {}

  CudaMemory {
    parts = parts.stream().filter(part -> part.bytes() > 0).toList();
  }

  private static final String ROW = "%n  %10s  %s";
  private static final long SMALL_GRANULE = 512;
  private static final long GRANULE = 2 << 20;
  private static final long LARGE = 1 << 20;

  /**
   * What stays free on a card: the larger of 256 MiB and 3%, for what the driver takes for modules,
   * graphs and stacks when they are first used, and for what fragments. The smallest cards that can
   * run the kernels have 2 GiB, of which that is an eighth; of less, as tests pretend and slices of
   * a card may have, it is an eighth too.
   */
  static long margin(long cardBytes) {
    return Math.min(Math.max(256L << 20, cardBytes / 100 * 3), cardBytes / 8);
  }

  /** What the driver takes for {@code count} allocations of so many bytes each. */
  private static long allocated(long bytes, long count) {
    long granule = bytes <= LARGE ? SMALL_GRANULE : GRANULE;
    return Math.ceilDiv(bytes, granule) * granule * count;
  }

  private static long allocated(long bytes) {
    return allocated(bytes, 1);
  }

  /** What activations of a prompt, the KV cache and tables are, beside such weights. */
  static Element activations(Element weights) {
    return weights == Element.I8 ? Element.F16 : weights;
  }

  /**
   * The weights of a model and what brings them to the device.
   *
   * @param ownHead whether the head is not wte
   */
  static CudaMemory ofModel(Gpt2Config config, boolean ownHead, Element weights) {
    long width = config.nEmbd();
    long inner = config.nInner();
    long vocabulary = config.vocabSize();
    int element = activations(weights).bytes();
    boolean bytes = weights == Element.I8; // the head is int8, the embedding's table is not
    long heads = allocated(vocabulary * width * element, ownHead && !bytes ? 2 : 1);
    long wide = 0;
    if (bytes) {
      heads += matrix(width, vocabulary, weights);
      wide = element * width * Math.max(vocabulary, Math.max(inner, 3 * width));
    }
    long maps =
        matrix(width, 3 * width, weights)
            + matrix(width, width, weights)
            + matrix(width, inner, weights)
            + matrix(inner, width, weights);
    long vectors = vector(3 * width) + vector(inner) + 6 * vector(width);
    return new CudaMemory(
        List.of(
            new Part(
                "token and position tables",
                heads + allocated(config.nPositions() * width * element)),
            new Part(
                "%d layers, %s".formatted(config.nLayer(), weights.suffix()),
                config.nLayer() * (maps + vectors)),
            new Part("last layer norm", 2 * vector(width)),
            new Part("one matrix widened for prompts", allocated(wide)),
            new Part(
                "upload buffers, until it is loaded",
                allocated(CudaWeights.pieceBytes(config), CudaWeights.SLOTS))));
  }

  /** Both. */
  CudaMemory and(CudaMemory other) {
    List<Part> all = new ArrayList<>(parts);
    all.addAll(other.parts);
    return new CudaMemory(all);
  }

  private static long vector(long elements) {
    return allocated(elements * Float.BYTES);
  }

  /** A weight [in, outputs] and, where it is int8, the scales of its groups. */
  private static long matrix(long in, long outputs, Element weights) {
    long scales =
        weights == Element.I8
            ? outputs * Math.ceilDiv(in, (long) Int8Weights.GROUP) * Float.BYTES
            : 0;
    return allocated(in * outputs * weights.bytes()) + allocated(scales);
  }

  /**
   * The buffers of a session.
   *
   * @param activations what activations of a prompt and the KV cache are
   * @param library whether cuBLAS multiplies prompts, which takes room for products
   * @param scores bytes that attention takes for the scores of a layer
   */
  static CudaMemory ofSession(SessionSize size, Element activations, boolean library, long scores) {
    Gpt2Config config = size.config();
    int samples = size.samples();
    CacheShape cache = cacheShape(size);
    long logits = (long) Math.max(size.logitRows(), samples) * config.vocabSize() * Float.BYTES;
    long products =
        library
            ? Math.max(
                logits, (long) size.rows() * Math.max(3 * config.nEmbd(), config.nInner()) * 4)
            : 0;
    List<Part> parts = new ArrayList<>();
    parts.add(
        new Part(
            "KV cache of %d x %d positions, %s"
                .formatted(samples, size.positions(), activations.suffix()),
            allocated(cache.elements() * activations.bytes(), 2L * config.nLayer())));
    parts.add(
        new Part(
            "activations of %d rows".formatted(size.rows()),
            rows(size.rows(), activations, config)));
    parts.add(new Part("logits", allocated(logits)));
    parts.add(new Part("attention maps of the prompt", promptMaps(size)));
    parts.add(new Part("attention scores of the plain kernels", allocated(scores)));
    parts.add(new Part("products of cuBLAS", allocated(products)));
    parts.add(new Part("tokens and places of a pass", allocated(16L * lane(size.rows()), 2)));
    if (size.writes()) {
      steps(size, cache, parts);
    }
    return new CudaMemory(parts);
  }

  /** The KV cache of a layer. */
  static CacheShape cacheShape(SessionSize size) {
    Gpt2Config config = size.config();
    return new CacheShape(
        size.samples(), config.nHead(), Math.ceilDiv(size.positions(), 64) * 64, config.headDim());
  }

  private static long promptMaps(SessionSize size) {
    if (size.attention().isEmpty()) {
      return 0;
    }
    long chunk = Math.ceilDiv(size.attentionScratch(), CudaOps.MAPS_AHEAD);
    return allocated(chunk, CudaOps.MAPS_AHEAD) + allocated(4L * size.config().nHead());
  }

  private static void steps(SessionSize size, CacheShape cache, List<Part> parts) {
    Gpt2Config config = size.config();
    int samples = size.samples();
    long maps =
        size.attention().map(plan -> StepRoom.mapBytes(plan, samples, cache.capacity())).orElse(0L);
    long words = Math.ceilDiv(config.vocabSize(), Integer.SIZE);
    parts.add(new Part("activations of decoding steps", rows(samples, Element.F32, config)));
    long scratch =
        DecodeAttention.scratchBytes(cache, samples).stream()
            .mapToLong(CudaMemory::allocated)
            .sum();
    parts.add(new Part("attention of decoding steps", scratch));
    parts.add(new Part("attention maps of decoding steps", allocated(maps, StepRoom.SLOTS)));
    parts.add(
        new Part(
            "sampling",
            allocated(4L * StepRoom.listInts(samples))
                + allocated(4L * lane(samples))
                + allocated(16L * samples) // segments
                + allocated(4 * words)
                + allocated(4 * words * samples)));
  }

  /** What a forward pass writes on its way: x, h, qkv, y, lse and inner. */
  private static long rows(long rows, Element element, Gpt2Config config) {
    long width = config.nEmbd();
    return allocated(rows * width * Float.BYTES)
        + allocated(rows * config.nHead() * Float.BYTES)
        + allocated(rows * width * element.bytes(), 2)
        + allocated(rows * 3 * width * element.bytes())
        + allocated(rows * config.nInner() * element.bytes());
  }

  /** A list for each row, at a multiple of 16 bytes. */
  private static int lane(int rows) {
    return Math.ceilDiv(rows, 4) * 4;
  }

  long bytes() {
    return parts.stream().mapToLong(Part::bytes).sum();
  }

  /**
   * Whether so much is free, and the margin beside it.
   *
   * @param spare gives memory back and returns true, or returns false if it has none to give
   */
  boolean fits(Gpu gpu, BooleanSupplier spare) {
    long needed = bytes() + margin(gpu.totalBytes());
    while (gpu.freeBytes() < needed) {
      if (!spare.getAsBoolean()) {
        return false;
      }
    }
    return true;
  }

  /**
   * Compares with what is free.
   *
   * @param spare as for {@link #fits}
   * @param who for example {@code the model}
   * @param advice what to do if it does not fit
   * @throws GpuMemoryException if it does not fit, with a table of who needs what
   */
  void requireRoom(Gpu gpu, BooleanSupplier spare, String who, String advice) {
    if (fits(gpu, spare)) {
      return;
    }
    long margin = margin(gpu.totalBytes());
    StringBuilder message = new StringBuilder();
    message.append(
        "out of GPU memory: %s needs %s, and %s of %s are free on %s: %s"
            .formatted(
                who,
                Gpu.size(bytes() + margin),
                Gpu.size(gpu.freeBytes()),
                Gpu.size(gpu.totalBytes()),
                gpu.name(),
                advice));
    for (Part part : parts) {
      message.append(ROW.formatted(Gpu.size(part.bytes()), part.what()));
    }
    message.append(ROW.formatted(Gpu.size(margin), "margin that stays free for the driver"));
    throw new GpuMemoryException(message.toString());
  }
}
