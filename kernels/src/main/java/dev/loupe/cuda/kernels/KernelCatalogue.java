package dev.loupe.cuda.kernels;

import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.stream.Stream;

/** Every kernel variant there is; tests and benchmarks go through this list. */
public final class KernelCatalogue {
  private static final List<Variant> ALL =
      Stream.of(
              WeightKernels.VARIANTS,
              EmbeddingKernels.VARIANTS,
              LayerNormKernels.VARIANTS,
              LinearKernels.VARIANTS,
              GemvKernels.VARIANTS,
              CublasLinear.VARIANTS,
              AttentionKernels.VARIANTS,
              DecodeAttention.VARIANTS,
              AttentionMapKernels.MAPS,
              AttentionMapKernels.STATISTICS,
              PointwiseKernels.VARIANTS,
              SampleKernels.VARIANTS,
              StepKernels.VARIANTS)
          .flatMap(List::stream)
          .toList();

  private KernelCatalogue() {}

  /** All variants, family by family; within one, each has an idea more than the one before. */
  public static List<Variant> all() {
    return ALL;
  }

  /** The variants of one family. */
  public static List<Variant> of(String family) {
    return all().stream().filter(v -> v.family().equals(family)).toList();
  }
}
