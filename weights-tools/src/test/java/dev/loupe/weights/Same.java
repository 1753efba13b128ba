package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Whether two checkpoints hold one model, to the bit. */
public final class Same {
  private Same() {}

  public static void model(Checkpoint expected, Checkpoint actual) {
    assertEquals(expected.config(), actual.config());
    assertEquals(
        expected.tensors().stream().map(StoredTensor::name).toList(),
        actual.tensors().stream().map(StoredTensor::name).toList());
    for (StoredTensor tensor : expected.tensors()) {
      StoredTensor other = actual.tensor(tensor.name());
      assertEquals(tensor.shape(), other.shape(), tensor.name());
      assertEquals(tensor.dtype(), other.dtype(), tensor.name());
      float[] values = floats(tensor);
      assertArrayEquals(values, floats(other), tensor.name());
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment dense = other.data(arena);
        assertEquals(-1, dense.mismatch(tensor.data(arena)), tensor.name());
      }
    }
  }

  static float[] floats(StoredTensor tensor) {
    float[] values = new float[(int) tensor.elements()];
    tensor.read(0, values, 0, values.length);
    return values;
  }
}
