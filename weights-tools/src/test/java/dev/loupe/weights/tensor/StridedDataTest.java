package dev.loupe.weights.tensor;

import static java.nio.ByteOrder.BIG_ENDIAN;
import static java.nio.ByteOrder.LITTLE_ENDIAN;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class StridedDataTest {
  /** Element i is i + 0.5, which all types hold up to 127. */
  private static MemorySegment storage(DType dtype, int n) {
    float[] values = new float[n];
    for (int i = 0; i < n; i++) {
      values[i] = i + 0.5f;
    }
    MemorySegment storage = MemorySegment.ofArray(new byte[n * dtype.bytes()]);
    dtype.encode(values, 0, n, storage, 0);
    return storage;
  }

  private static void assertHolds(TensorData data, float... expected) {
    assertEquals(expected.length, data.elements());
    float[] all = new float[expected.length];
    try (Arena arena = Arena.ofConfined()) {
      data.dtype().decode(data.dense(arena), 0, all, 0, all.length);
      assertArrayEquals(expected, all);
    }
    for (int first = 0; first < expected.length; first++) {
      float[] one = new float[3];
      data.read(first, one, 1, 1);
      assertArrayEquals(new float[] {0, expected[first], 0}, one);
    }
    assertThrows(
        IndexOutOfBoundsException.class, () -> data.read(expected.length, new float[1], 0, 1));
  }

  @ParameterizedTest
  @EnumSource
  void views(DType dtype) {
    MemorySegment storage = storage(dtype, 12);
    assertHolds(
        StridedData.transposed(dtype, storage.asSlice(0, 6L * dtype.bytes()), 2, 3),
        0.5f,
        3.5f,
        1.5f,
        4.5f,
        2.5f,
        5.5f);
    assertHolds(
        view(dtype, 1, List.of(3L, 2L), List.of(4L, 2L)), 1.5f, 3.5f, 5.5f, 7.5f, 9.5f, 11.5f);
    assertHolds(
        view(dtype, 0, List.of(2L, 2L, 2L), List.of(1L, 6L, 3L)),
        0.5f,
        3.5f,
        6.5f,
        9.5f,
        1.5f,
        4.5f,
        7.5f,
        10.5f);
    assertHolds(view(dtype, 3, List.of(4L), List.of(0L)), 3.5f, 3.5f, 3.5f, 3.5f);
    assertHolds(view(dtype, 5, List.of(), List.of()), 5.5f);
    assertHolds(view(dtype, 12, List.of(0L, 3L), List.of(3L, 1L)));
  }

  private static TensorData view(DType dtype, long offset, List<Long> shape, List<Long> strides) {
    return StridedData.of(dtype, LITTLE_ENDIAN, storage(dtype, 12), offset, shape, strides);
  }

  /** More rows than are copied side by side, and not a multiple of them. */
  @Test
  void largeTranspositions() {
    int rows = 45;
    int columns = 39;
    float[] expected = new float[rows * columns];
    for (int i = 0; i < columns; i++) {
      for (int o = 0; o < rows; o++) {
        expected[i * rows + o] = o * columns + i + 0.5f;
      }
    }
    MemorySegment storage = storage(DType.F32, rows * columns);
    assertHolds(StridedData.transposed(DType.F32, storage, rows, columns), expected);
  }

  @ParameterizedTest
  @EnumSource
  void bytesInTheOtherOrder(DType dtype) {
    int size = dtype.bytes();
    MemorySegment storage = storage(dtype, 4);
    byte[] turned = new byte[4 * size];
    for (int i = 0; i < turned.length; i++) {
      int of = i / size * size + size - 1 - i % size;
      turned[i] = storage.get(java.lang.foreign.ValueLayout.JAVA_BYTE, of);
    }
    TensorData data =
        StridedData.of(
            dtype, BIG_ENDIAN, MemorySegment.ofArray(turned), 0, List.of(4L), List.of(1L));
    assertHolds(data, 0.5f, 1.5f, 2.5f, 3.5f);
  }

  @Test
  void whatIsDenseIsNotCopied() {
    MemorySegment storage = storage(DType.F32, 12);
    TensorData data =
        StridedData.of(
            DType.F32, LITTLE_ENDIAN, storage, 2, List.of(1L, 3L, 2L), List.of(99L, 2L, 1L));
    assertInstanceOf(DenseData.class, data);
    assertHolds(data, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f, 7.5f);
    MemorySegment made = data.dense(Arena.ofAuto());
    storage.setAtIndex(java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED, 2, 0);
    assertEquals(0, made.get(java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED, 0), "a view");
    TensorData other = StridedData.transposed(DType.F32, storage, 3, 4);
    assertNotSame(other.dense(Arena.ofAuto()), other.dense(Arena.ofAuto()));
  }

  @Test
  void refusesWhatLeavesItsStorage() {
    refused(0, List.of(13L), List.of(1L));
    refused(1, List.of(12L), List.of(1L));
    refused(-1, List.of(2L), List.of(1L));
    refused(0, List.of(2L), List.of(-1L));
    refused(0, List.of(2L), List.of());
    refused(0, List.of(3L, 2L), List.of(6L, 1L));
    refused(0, List.of(13L), List.of(0L)); // of one number, gigabytes
    refused(0, List.of(1L << 40, 1L << 40), List.of(0L, 0L));
    refused(0, List.of(2L), List.of(Long.MAX_VALUE));
    refused(Long.MAX_VALUE, List.of(2L), List.of(1L));
    refused(0, List.of(-2L, -2L), List.of(1L, 1L));
    assertThrows(
        IllegalArgumentException.class,
        () -> StridedData.transposed(DType.F32, storage(DType.F32, 12), 3, 5));
  }

  private static void refused(long offset, List<Long> shape, List<Long> strides) {
    assertThrows(IllegalArgumentException.class, () -> view(DType.F32, offset, shape, strides));
  }
}
