package dev.loupe.cuda.ptx.text;

import java.util.List;

/**
 * What a statement works on. Constants and special registers have a place among the registers, so
 * that each value is read in one way.
 */
public sealed interface Operand {
  /** A register, a constant, or the address of a variable. */
  record Scalar(int register) implements Operand {}

  /** {@code {a, b}}: the registers, low to high. */
  record Vector(List<Integer> registers) implements Operand {
    public Vector {
      registers = List.copyOf(registers);
    }

    public int[] toArray() {
      return registers.stream().mapToInt(r -> r).toArray();
    }
  }

  /** {@code [base + offset]}. */
  record Address(int base, long offset) implements Operand {}

  /** {@code !p}. */
  record Not(int register) implements Operand {}

  /** {@code d|p}: a result and the predicate beside it. */
  record Pair(int register, int predicate) implements Operand {}

  /** Where a branch goes. */
  record Label(String name) implements Operand {}
}
