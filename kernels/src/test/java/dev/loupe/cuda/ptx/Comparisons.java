package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;
import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.Type;

/** {@code setp}: a comparison, with a predicate beside it where there is one. */
final class Comparisons {
  private Comparisons() {}

  private interface Test {
    boolean of(long a, long b);
  }

  private enum Join {
    NONE,
    AND,
    OR,
    XOR;

    boolean of(boolean compared, boolean other) {
      return switch (this) {
        case NONE -> compared;
        case AND -> compared && other;
        case OR -> compared || other;
        case XOR -> compared != other;
      };
    }
  }

  static Plain decode(Statement s) {
    Type type = s.type();
    String comparison = s.parts().get(1);
    Join join =
        s.has("and") ? Join.AND : s.has("or") ? Join.OR : s.has("xor") ? Join.XOR : Join.NONE;
    s.modifiers(1, comparison, "and", "or", "xor", "ftz").count(join == Join.NONE ? 3 : 4);
    Test test = type.isFloat() ? floats(s, comparison, type) : integers(s, comparison, type);
    Operand to = s.operands().getFirst();
    int yes = to instanceof Operand.Pair(int p, _) ? p : s.register(0);
    int no = to instanceof Operand.Pair(_, int q) ? q : -1;
    int a = s.register(1);
    int b = s.register(2);
    boolean negated = join != Join.NONE && s.operands().get(3) instanceof Operand.Not;
    int other =
        join == Join.NONE
            ? a
            : s.operands().get(3) instanceof Operand.Not(int register) ? register : s.register(3);
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          boolean compared = test.of(warp.registers[a][lane], warp.registers[b][lane]);
          boolean beside = warp.registers[other][lane] != 0 != negated;
          warp.registers[yes][lane] = join.of(compared, beside) ? 1 : 0;
          if (no >= 0) {
            warp.registers[no][lane] = join.of(!compared, beside) ? 1 : 0;
          }
        }
      }
    };
  }

  private static Test integers(Statement s, String comparison, Type type) {
    if (s.has("ftz")) {
      throw s.unknown();
    }
    return switch (comparison) {
      case "eq" -> (a, b) -> type.integer(a) == type.integer(b);
      case "ne" -> (a, b) -> type.integer(a) != type.integer(b);
      case "lt" -> (a, b) -> IntegerInstructions.compare(type, a, b) < 0;
      case "le" -> (a, b) -> IntegerInstructions.compare(type, a, b) <= 0;
      case "gt" -> (a, b) -> IntegerInstructions.compare(type, a, b) > 0;
      case "ge" -> (a, b) -> IntegerInstructions.compare(type, a, b) >= 0;
      default -> throw s.unknown();
    };
  }

  /** With a u at its end a comparison is true if an operand is NaN. */
  private static Test floats(Statement s, String comparison, Type type) {
    boolean flush = s.has("ftz");
    boolean unordered = comparison.length() == 3 && comparison.endsWith("u");
    String ordered = unordered ? comparison.substring(0, 2) : comparison;
    return (a, b) -> {
      double x = Floats.value(type, a, flush);
      double y = Floats.value(type, b, flush);
      boolean nan = Double.isNaN(x) || Double.isNaN(y);
      return switch (ordered) {
        case "num" -> !nan;
        case "nan" -> nan;
        case "eq" -> nan ? unordered : x == y;
        case "ne" -> nan ? unordered : x != y;
        case "lt" -> nan ? unordered : x < y;
        case "le" -> nan ? unordered : x <= y;
        case "gt" -> nan ? unordered : x > y;
        case "ge" -> nan ? unordered : x >= y;
        default -> throw s.unknown();
      };
    };
  }
}
