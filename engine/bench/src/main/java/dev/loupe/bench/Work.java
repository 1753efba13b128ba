package dev.loupe.bench;

import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
import java.util.Locale;

/**
 * What a forward pass has to move and compute, whoever computes it. C is the model's width, I that
 * of its MLP, L its layers, V its vocabulary; the pass reads R tokens after P others and makes the
 * logits of the last one.
 *
 * <pre>
 * weights        L (4 C^2 + 2 C I) + V C, each read once however many rows there are
 * biases, norms  L (9 C + I) + 2 C, f32, read once
 * cache          2 L C (P + R) read and 2 L C R written
 * multiply-adds  R L (4 C^2 + 2 C I) + V C, and for attention 2 L C for each key of each row:
 *                2 L C (R P + R (R + 1) / 2)
 * </pre>
 *
 * <p>The rows of the embedding, activations (which stay in caches) and maps are left out, so bytes
 * per second are what the memory gives at least.
 *
 * @param bytes bytes read or written
 * @param multiplyAdds of the products; each is two floating-point operations
 */
public record Work(double bytes, double multiplyAdds) {

  /**
   * How numbers lie in memory.
   *
   * @param weightBytes of one element of a matrix, its share of the scales included
   * @param cacheBytes of one element of the KV cache
   */
  record Storage(double weightBytes, int cacheBytes) {
    /** int8 has a scale in f32 for each 64 weights. */
    private static final double INT8 = 1 + 4.0 / 64;

    /** What the backends make of a model: see the memory needs that they state. */
    static Storage of(ModelInfo model, Precision precision) {
      boolean cpu = model.backend().equals("cpu");
      DType stored = DType.valueOf(model.dtype().toUpperCase(Locale.ROOT));
      double weight =
          switch (precision) {
            // the CPU leaves weights in the file's type, and widens f64 only as what it is not
            case F32 -> cpu && stored != DType.F64 ? stored.bytes() : Float.BYTES;
            case F16, BF16 -> Short.BYTES;
            case INT8 -> INT8;
          };
      return new Storage(weight, cpu || precision == Precision.F32 ? Float.BYTES : Short.BYTES);
    }
  }

  /** Bytes of the weights that every pass reads. */
  static long weightBytes(Gpt2Config config, Storage storage) {
    double c = config.nEmbd();
    double inner = config.nInner();
    double layers = config.nLayer();
    double matrices = layers * (4 * c * c + 2 * c * inner) + c * config.vocabSize();
    double vectors = layers * (9 * c + inner) + 2 * c;
    return Math.round(matrices * storage.weightBytes + vectors * Float.BYTES);
  }

  /** Bytes of a KV cache for so many tokens: 2 L C each, in blocks of 64. */
  static long cacheBytes(Gpt2Config config, Storage storage, int tokens) {
    long cells = Math.ceilDiv(tokens, 64) * 64L;
    return 2 * cells * config.nLayer() * config.nEmbd() * storage.cacheBytes;
  }

  /** Bytes of kept maps of all heads: f32, T (T + 1) / 2 of each for T tokens. */
  static long mapBytes(Gpt2Config config, int layers, int tokens) {
    return 2L * layers * config.nHead() * tokens * (tokens + 1);
  }

  /** One pass over {@code rows} tokens that follow {@code before} others. */
  static Work pass(Gpt2Config config, Storage storage, long before, long rows) {
    double c = config.nEmbd();
    double inner = config.nInner();
    double layers = config.nLayer();
    double matrices = layers * (4 * c * c + 2 * c * inner);
    double head = c * config.vocabSize();
    double cache = 2 * layers * c * (before + 2 * rows);
    double keys = rows * before + rows * (rows + 1) / 2.0;
    return new Work(
        (double) weightBytes(config, storage) + cache * storage.cacheBytes,
        rows * matrices + head + 2 * layers * c * keys);
  }

  /**
   * The average of {@code steps} passes of one token of each text, the first after {@code before}
   * others. Texts share what is read of the weights.
   */
  static Work step(Gpt2Config config, Storage storage, int before, int steps, int texts) {
    double weights = weightBytes(config, storage);
    double bytes = weights;
    double multiplyAdds = 0;
    for (int i = 0; i < steps; i++) {
      Work step = pass(config, storage, before + i, 1);
      bytes += texts * (step.bytes - weights) / steps;
      multiplyAdds += texts * step.multiplyAdds / steps;
    }
    return new Work(bytes, multiplyAdds);
  }
}
