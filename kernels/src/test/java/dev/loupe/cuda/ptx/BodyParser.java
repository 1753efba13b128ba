package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.Literals;
import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Tokens;
import dev.loupe.cuda.ptx.text.Type;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads the body of an entry, and decodes its instructions once all labels are known. */
final class BodyParser {
  private final Tokens tokens;
  private final Registers registers = new Registers();
  private final Deque<Map<String, Integer>> scopes = new ArrayDeque<>(); // innermost first
  private final Map<String, Long> addresses = new HashMap<>(); // of variables
  private final Map<String, Integer> labels = new HashMap<>();
  private final List<Statement> statements = new ArrayList<>();

  /** Behind the opening brace. */
  BodyParser(Tokens tokens, Map<String, Integer> parameters, List<String> dynamicShared) {
    this.tokens = tokens;
    parameters.forEach((name, offset) -> addresses.put(name, (long) offset));
    dynamicShared.forEach(name -> addresses.put(name, Block.DYNAMIC_SHARED));
  }

  List<Step> code() {
    scopes.push(new HashMap<>());
    while (!scopes.isEmpty()) {
      if (tokens.accept("{")) {
        scopes.push(new HashMap<>());
      } else if (tokens.accept("}")) {
        scopes.pop();
      } else if (tokens.peek(1).equals(":")) {
        labels.put(tokens.take(), statements.size());
        tokens.expect(":");
      } else if (tokens.peek().startsWith(".")) {
        directive();
      } else {
        statements.add(statement());
      }
    }
    Decoder decoder = new Decoder(labels);
    return statements.stream().map(s -> Step.of(s, decoder.decode(s))).toList();
  }

  Registers registers() {
    return registers;
  }

  private void directive() {
    int line = tokens.line();
    String directive = tokens.take();
    switch (directive) {
      case ".reg" -> declareRegisters();
      case ".pragma" -> tokens.take(); // "nounroll": says nothing of results
      default -> throw Parser.unknown(line, directive);
    }
    tokens.expect(";");
  }

  /** {@code .reg .b32 %r<3>} has %r0 to %r2; {@code .reg .f16 low,high} these two. */
  private void declareRegisters() {
    Type type = type();
    Map<String, Integer> scope = scopes.element();
    do {
      String name = tokens.take();
      if (tokens.accept("<")) {
        int count = tokens.number();
        tokens.expect(">");
        for (int i = 0; i < count; i++) {
          scope.put(name + i, registers.add(type.bits()));
        }
      } else {
        scope.put(name, registers.add(type.bits()));
      }
    } while (tokens.accept(","));
  }

  private Type type() {
    int line = tokens.line();
    String name = tokens.take();
    return Type.of(name.substring(1)).orElseThrow(() -> Parser.unknown(line, name));
  }

  private Statement statement() {
    int line = tokens.line();
    Operand.Scalar guard = null;
    boolean negated = false;
    if (tokens.accept("@")) {
      negated = tokens.accept("!");
      guard = new Operand.Scalar(register(tokens.take(), line));
    }
    String name = tokens.take();
    List<String> parts = Arrays.asList(name.split("\\.", -1));
    List<Operand> operands = new ArrayList<>();
    while (!tokens.accept(";")) {
      operands.add(operand(parts.getFirst(), line));
      if (!tokens.peek().equals(";")) {
        tokens.expect(",");
      }
    }
    return new Statement(line, name, parts, guard, negated, operands, registers);
  }

  private Operand operand(String opcode, int line) {
    if (tokens.accept("{")) {
      List<Integer> of = new ArrayList<>();
      while (!tokens.accept("}")) {
        of.add(register(tokens.take(), line));
        tokens.accept(",");
      }
      return new Operand.Vector(of);
    }
    if (tokens.accept("[")) {
      int base = register(tokens.take(), line);
      long offset = 0;
      if (tokens.accept("+")) {
        offset = Literals.parse(tokens.take(), line);
      } else if (tokens.peek().startsWith("-")) {
        offset = Literals.parse(tokens.take(), line);
      }
      tokens.expect("]");
      return new Operand.Address(base, offset);
    }
    if (tokens.accept("!")) {
      return new Operand.Not(register(tokens.take(), line));
    }
    String name = tokens.take();
    if (opcode.equals("bra")) {
      return new Operand.Label(name);
    }
    int register = register(name, line);
    return tokens.accept("|")
        ? new Operand.Pair(register, register(tokens.take(), line))
        : new Operand.Scalar(register);
  }

  /** The register that a name or constant stands for; {@code _} is one that nobody reads. */
  private int register(String name, int line) {
    if (Literals.isOne(name)) {
      return registers.constant(Literals.parse(name, line));
    }
    if (name.equals("_")) {
      return registers.add(64);
    }
    for (Map<String, Integer> scope : scopes) {
      Integer register = scope.get(name);
      if (register != null) {
        return register;
      }
    }
    Registers.Special special = Registers.Special.BY_NAME.get(name);
    if (special != null) {
      return registers.special(special);
    }
    Long address = addresses.get(name);
    if (address != null) {
      return registers.constant(address);
    }
    throw new PtxException("line %d: the interpreter does not know %s".formatted(line, name));
  }
}
