package dev.loupe.ops.cuda;

import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import java.util.Arrays;
import java.util.Optional;

/** Which models the kernels can compute. */
public final class CudaLimits {
  private CudaLimits() {}

  /** Whether there are kernels for it; a model with another one runs on the CPU. */
  private static boolean computes(Activation f) {
    return Arrays.stream(KernelActivation.values())
        .anyMatch(kernel -> kernel.name().equals(f.name()));
  }

  /** Why no GPU can run a model of this shape; empty if one can. */
  public static Optional<String> whyNot(Gpt2Config config) {
    if (config.headDim() % 8 != 0 || config.headDim() > 128) {
      return Optional.of(
          "heads %d wide: the GPU takes multiples of 8 up to 128".formatted(config.headDim()));
    }
    if (!computes(config.activation())) {
      return Optional.of(
          "activation_function %s: no GPU kernel computes it"
              .formatted(config.activation().configName()));
    }
    return Optional.empty();
  }

  /** What the kernels call an activation function. */
  static KernelActivation kernel(Activation f) {
    return KernelActivation.valueOf(f.name());
  }
}
