package dev.loupe.kernels;

import java.util.List;

/** Every kernel variant there is; tests and benchmarks go through this list. */
public final class KernelCatalogue {
  private KernelCatalogue() {}

  /** All variants, family by family, in the order of their names. */
  public static List<Variant> all() {
    return List.of(); // each family's class adds its rows here: XxxKernels.VARIANTS
  }

  /** The variants of one family. */
  public static List<Variant> of(String family) {
    return all().stream().filter(v -> v.family().equals(family)).toList();
  }
}
