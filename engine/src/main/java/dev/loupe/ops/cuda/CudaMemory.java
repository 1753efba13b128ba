package dev.loupe.ops.cuda;

import dev.loupe.kernels.CacheShape;
import dev.loupe.kernels.DecodeAttention;
import dev.loupe.kernels.Element;
import dev.loupe.kernels.Gpu;
import dev.loupe.kernels.GpuMemoryException;
import dev.loupe.kernels.Int8Weights;
import dev.loupe.ops.SessionSize;
import dev.loupe.weights.Gpt2Config;
import java.util.ArrayList;
import java.util.List;

/**
 * Device memory that a model or a session will take, known before any of it is allocated.
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
    long heads = (ownHead && !bytes ? 2 : 1) * vocabulary * width * element;
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
    long vectors = 3 * width + width + inner + width + 4 * width;
    return new CudaMemory(
        List.of(
            new Part("token and position tables", heads + config.nPositions() * width * element),
            new Part(
                "%d layers, %s".formatted(config.nLayer(), weights.suffix()),
                config.nLayer() * (maps + vectors * Float.BYTES)),
            new Part("last layer norm", 2 * width * Float.BYTES),
            new Part("one matrix widened for prompts", wide),
            new Part("upload buffer", CudaWeights.chunkBytes(config))));
  }

  /** A weight [in, outputs] and, where it is int8, the scales of its groups. */
  private static long matrix(long in, long outputs, Element weights) {
    long scales =
        weights == Element.I8
            ? outputs * Math.ceilDiv(in, (long) Int8Weights.GROUP) * Float.BYTES
            : 0;
    return in * outputs * weights.bytes() + scales;
  }

  /**
   * The buffers of a session.
   *
   * @param activations what activations of a prompt and the KV cache are
   * @param library whether cuBLAS multiplies prompts, which takes room for products
   */
  static CudaMemory ofSession(SessionSize size, Element activations, boolean library) {
    Gpt2Config config = size.config();
    int samples = size.samples();
    CacheShape cache =
        new CacheShape(
            samples, config.nHead(), Math.ceilDiv(size.positions(), 64) * 64, config.headDim());
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
            2L * config.nLayer() * cache.elements() * activations.bytes()));
    parts.add(
        new Part(
            "activations of %d rows".formatted(size.rows()),
            rows(size.rows(), activations, config)));
    parts.add(new Part("logits", logits));
    long heads = size.attention().map(plan -> 4L * plan.heads().size()).orElse(0L);
    parts.add(new Part("attention maps of the prompt", size.attentionScratch() + heads));
    parts.add(new Part("products of cuBLAS", products));
    parts.add(
        new Part(
            "tokens and places of a pass", (4L * lane(size.rows()) + 4L * lane(size.rows())) * 4));
    if (size.writes()) {
      steps(size, cache, parts);
    }
    return new CudaMemory(parts);
  }

  private static void steps(SessionSize size, CacheShape cache, List<Part> parts) {
    Gpt2Config config = size.config();
    int samples = size.samples();
    long maps =
        size.attention()
            .map(plan -> CudaSteps.mapBytes(plan, samples, cache.capacity()))
            .orElse(0L);
    long words = Math.ceilDiv(config.vocabSize(), Integer.SIZE);
    parts.add(new Part("activations of decoding steps", rows(samples, Element.F32, config)));
    parts.add(
        new Part("attention of decoding steps", DecodeAttention.scratchBytes(cache, samples)));
    parts.add(new Part("attention maps of decoding steps", CudaSteps.SLOTS * maps));
    parts.add(
        new Part(
            "sampling",
            (9L * lane(samples)
                    + 4L * samples
                    + (long) CudaSteps.RESULT * samples
                    + words * (1 + samples))
                * 4));
  }

  /** What a forward pass writes on its way: x, h, qkv, y, lse and inner. */
  private static long rows(long rows, Element element, Gpt2Config config) {
    return rows
        * ((config.nEmbd() + config.nHead()) * (long) Float.BYTES
            + (5L * config.nEmbd() + config.nInner()) * element.bytes());
  }

  /** A list for each row, at a multiple of 16 bytes. */
  private static int lane(int rows) {
    return Math.ceilDiv(rows, 4) * 4;
  }

  long bytes() {
    return parts.stream().mapToLong(Part::bytes).sum();
  }

  /**
   * Compares with what is free.
   *
   * @param who for example {@code the model}
   * @param advice what to do if it does not fit
   * @throws GpuMemoryException if it does not fit, with a table of who needs what
   */
  void requireRoom(Gpu gpu, String who, String advice) {
    long free = gpu.freeBytes();
    if (bytes() <= free) {
      return;
    }
    StringBuilder message = new StringBuilder();
    message.append(
        "out of GPU memory: %s needs %s, and %s of %s are free on %s: %s"
            .formatted(
                who,
                Gpu.size(bytes()),
                Gpu.size(free),
                Gpu.size(gpu.totalBytes()),
                gpu.name(),
                advice));
    for (Part part : parts) {
      message.append("%n  %10s  %s".formatted(Gpu.size(part.bytes()), part.what()));
    }
    throw new GpuMemoryException(message.toString());
  }
}
