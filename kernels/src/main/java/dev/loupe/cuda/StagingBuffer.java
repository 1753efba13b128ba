package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.HostPointer;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** A piece of native memory that host values pass through, converted on the way. */
final class StagingBuffer {
  private static final long BYTES = 1 << 20;

  private final MemorySegment memory = Arena.ofAuto().allocate(BYTES, 64);
  private final HostPointer pointer = new HostPointer(memory.address());

  HostPointer pointer() {
    return pointer;
  }

  MemorySegment memory() {
    return memory;
  }

  /** Converts {@code n} values from {@code from} on to {@code element}, from f32. */
  void put(Element element, float[] values, int from, int n) {
    switch (element) {
      case F32 -> MemorySegment.copy(values, from, memory, ValueLayout.JAVA_FLOAT, 0, n);
      case F16 -> {
        for (int i = 0; i < n; i++) {
          short bits = Float.floatToFloat16(values[from + i]);
          memory.setAtIndex(ValueLayout.JAVA_SHORT, i, bits);
        }
      }
      case BF16 -> {
        for (int i = 0; i < n; i++) {
          memory.setAtIndex(ValueLayout.JAVA_SHORT, i, Element.toBf16(values[from + i]));
        }
      }
      case I8, I32 -> throw new IllegalArgumentException(element.suffix());
    }
  }

  /**
   * Converts {@code n} values of {@code element} to f32, into {@code values} from {@code at} on.
   */
  void get(Element element, float[] values, int at, int n) {
    switch (element) {
      case F32 -> MemorySegment.copy(memory, ValueLayout.JAVA_FLOAT, 0, values, at, n);
      case F16 -> {
        for (int i = 0; i < n; i++) {
          short bits = memory.getAtIndex(ValueLayout.JAVA_SHORT, i);
          values[at + i] = Float.float16ToFloat(bits);
        }
      }
      case BF16 -> {
        for (int i = 0; i < n; i++) {
          short bits = memory.getAtIndex(ValueLayout.JAVA_SHORT, i);
          values[at + i] = Element.fromBf16(bits);
        }
      }
      case I8, I32 -> throw new IllegalArgumentException(element.suffix());
    }
  }
}
