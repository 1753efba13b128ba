package dev.loupe.weights.torch;

import dev.loupe.weights.tensor.StridedData;
import java.util.ArrayList;
import java.util.List;

/**
 * A tensor as a PyTorch file describes it: element [i, j] is element offset + i strides[0] + j
 * strides[1] of the storage. That this lies inside is for {@link StridedData} to check.
 *
 * @param offset of the first element, in elements
 * @param strides steps in elements, one for each extent of the shape
 */
record TorchTensor(TorchStorage storage, long offset, List<Long> shape, List<Long> strides) {
  private static final int MAX_RANK = 16;

  /**
   * A tensor from the arguments of {@code torch._utils._rebuild_tensor_v2}: storage, offset, shape,
   * strides, and more that doesn't matter.
   *
   * @throws IllegalArgumentException if they are no such thing
   */
  static TorchTensor of(List<?> arguments) {
    if (arguments.size() >= 4
        && arguments.getFirst() instanceof TorchStorage storage
        && arguments.get(1) instanceof Long offset
        && arguments.get(2) instanceof List<?> shape
        && arguments.get(3) instanceof List<?> strides) {
      return new TorchTensor(storage, offset, naturals(shape), naturals(strides));
    }
    throw new IllegalArgumentException("a tensor without storage, offset, shape and strides");
  }

  private static List<Long> naturals(List<?> values) {
    if (values.size() > MAX_RANK) {
      throw new IllegalArgumentException("a tensor of rank %d".formatted(values.size()));
    }
    List<Long> naturals = new ArrayList<>(values.size());
    for (Object value : values) {
      if (!(value instanceof Long number) || number < 0) {
        throw new IllegalArgumentException("a tensor whose shape or strides are no naturals");
      }
      naturals.add(number);
    }
    return naturals;
  }

  /** The same elements, rows as columns; of anything but a matrix, itself. */
  TorchTensor transposed() {
    return shape.size() == 2
        ? new TorchTensor(storage, offset, shape.reversed(), strides.reversed())
        : this;
  }
}
