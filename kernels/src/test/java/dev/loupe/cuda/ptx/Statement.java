package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Type;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One instruction as it is written.
 *
 * @param line in the file
 * @param name with its modifiers, e.g. {@code add.rn.f32}
 * @param parts of the name between its dots, the opcode first
 * @param guard predicate that lanes need, or null
 * @param negated true for {@code @!p}
 */
record Statement(
    int line,
    String name,
    List<String> parts,
    Operand.@Nullable Scalar guard,
    boolean negated,
    List<Operand> operands,
    Registers registers) {
  /** What the entry's registers are. */
  interface Registers {
    /** Bits of one: 1 for a predicate, 64 for constants. */
    int bits(int register);
  }

  Statement {
    parts = List.copyOf(parts);
    operands = List.copyOf(operands);
  }

  String opcode() {
    return parts.getFirst();
  }

  /** The last part, which is the type of most instructions. */
  Type type() {
    return type(parts.size() - 1);
  }

  Type type(int part) {
    return Type.of(parts.get(part)).orElseThrow(() -> unknown());
  }

  boolean has(String modifier) {
    return parts.indexOf(modifier) > 0;
  }

  /** Fails unless all parts but the opcode and the last {@code types} are among {@code known}. */
  Statement modifiers(int types, String... known) {
    for (String part : parts.subList(1, parts.size() - types)) {
      if (!Arrays.asList(known).contains(part)) {
        throw unknown();
      }
    }
    return this;
  }

  Statement count(int operandCount) {
    if (operands.size() != operandCount) {
      throw new PtxException(
          "%s takes %d operands here, not %d".formatted(this, operandCount, operands.size()));
    }
    return this;
  }

  int register(int operand) {
    if (operands.get(operand) instanceof Operand.Scalar(int register)) {
      return register;
    }
    throw new PtxException("%s: operand %d is no register".formatted(this, operand));
  }

  /** The registers of a vector, or the only one. */
  int[] vector(int operand) {
    return operands.get(operand) instanceof Operand.Vector vector
        ? vector.toArray()
        : new int[] {register(operand)};
  }

  Operand.Address address(int operand) {
    if (operands.get(operand) instanceof Operand.Address address) {
      return address;
    }
    throw new PtxException("%s: operand %d is no address".formatted(this, operand));
  }

  /** All ones in the width of a result's register. */
  long mask(int register) {
    int bits = registers.bits(register);
    return bits == 64 ? -1 : (1L << bits) - 1;
  }

  PtxException unknown() {
    return new PtxException("the interpreter does not know " + this);
  }

  @Override
  public String toString() {
    return "%s in line %d".formatted(name, line);
  }
}
