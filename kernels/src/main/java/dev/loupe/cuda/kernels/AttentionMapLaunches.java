package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.LONG;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Parameter;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionMapKernels.Selection;
import dev.loupe.cuda.kernels.AttentionMapKernels.Source;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The launches of attention_map.cu and attention_stats.cu, and the parameters that both have. */
final class AttentionMapLaunches {
  // qkv, K, lse, segments, heads, out, head stride; segment count, element of qkv, flags, first
  // row, rows, columns; H, D, sequences, capacity, scale
  private static final Parameter[] MAP_PARAMETERS = {
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, LONG, INT, INT, INT, INT, INT, INT, INT,
    INT, INT, INT, FLOAT
  };

  // qkv, K, lse, segments, heads, entropy, distance, top keys, top p; k, segment count, element of
  // qkv, flags, first row, rows; H, D, sequences, capacity, scale
  private static final Parameter[] STATS_PARAMETERS = {
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT, INT,
    INT, INT, INT, INT, INT, INT, INT, FLOAT
  };

  private final Gpu gpu;
  private final CacheShape shape;
  private final Element activations;
  private final Element cache;
  private final Map<Variant, Launch> launches = new HashMap<>();

  AttentionMapLaunches(Gpu gpu, CacheShape shape, Element activations, Element cache) {
    this.gpu = gpu;
    this.shape = shape;
    this.activations = activations;
    this.cache = cache;
  }

  /**
   * The launch of a variant, made once.
   *
   * @throws IllegalArgumentException if it is not of the family, or does not take the elements
   */
  Launch of(List<Variant> family, Variant variant) {
    if (!family.contains(variant)) {
      throw new IllegalArgumentException(
          "%s %s is not one of %s %s"
              .formatted(
                  variant.family(),
                  variant.name(),
                  family.getFirst().family(),
                  family.stream().map(Variant::name).toList()));
    }
    requireSupport(variant);
    return launches.computeIfAbsent(variant, this::made);
  }

  private Launch made(Variant v) {
    Parameter[] usual =
        v.family().equals(AttentionMapKernels.MAP) ? MAP_PARAMETERS : STATS_PARAMETERS;
    Parameter[] parameters = Arrays.copyOf(usual, usual.length + (v.isPlain() ? 1 : 0));
    if (v.isPlain()) {
      parameters[usual.length] = INT; // element of the cache
    }
    return new Launch(gpu.kernel(v.family(), v.kernel(cache)), parameters);
  }

  private void requireSupport(Variant variant) {
    if (!variant.supports(cache, gpu.computeCapability())) {
      throw new IllegalArgumentException(
          "%s %s has no kernel for %s on compute capability %.1f: it comes in %s on %s"
              .formatted(
                  variant.family(),
                  variant.name(),
                  cache.suffix(),
                  gpu.computeCapability() / 10.0,
                  variant.elements().stream().map(Element::suffix).sorted().toList(),
                  variant.computeCapabilities()));
    }
    if (variant.name().equals("v3") && activations != cache) {
      throw new IllegalArgumentException(
          "%s v3 takes q and the cache as the same element, not %s and %s"
              .formatted(variant.family(), activations.suffix(), cache.suffix()));
    }
  }

  /** Sets the first four parameters. */
  static void setSource(Launch launch, Source source) {
    launch.set(0, source.qkv()).set(1, source.k()).set(2, source.lse()).set(3, source.segments());
  }

  /** Sets five parameters from {@code at} on: which rows are wanted, and how. */
  void setRows(Launch launch, int at, Source source, Selection want, int flags) {
    launch
        .set(at, source.segmentCount())
        .set(at + 1, activations.code())
        .set(at + 2, flags)
        .set(at + 3, want.firstRow())
        .set(at + 4, want.rows());
  }

  /** Sets the last parameters, from {@code at} on. */
  void setShape(Launch launch, int at, Source source, Variant variant) {
    launch
        .set(at, shape.heads())
        .set(at + 1, shape.headSize())
        .set(at + 2, shape.sequences())
        .set(at + 3, shape.capacity())
        .set(at + 4, source.scale());
    if (variant.isPlain()) {
      launch.set(at + 5, cache.code());
    }
  }
}
