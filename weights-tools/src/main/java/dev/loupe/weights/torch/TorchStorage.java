package dev.loupe.weights.torch;

/**
 * A stretch of elements in a PyTorch file, of which tensors are views.
 *
 * @param key its name in the file
 * @param dtype of its elements, as safetensors calls it, e.g. {@code F32}
 * @param elements how many; 0 or more, and their bytes fit a long
 */
record TorchStorage(String key, String dtype, long elements) {
  private int elementBytes() {
    return switch (dtype) {
      case "F64", "I64" -> 8;
      case "F32", "I32" -> 4;
      case "F16", "BF16", "I16" -> 2;
      default -> 1;
    };
  }

  long bytes() {
    return elements * elementBytes();
  }

  String described() {
    return "%d %s".formatted(elements, dtype);
  }
}
