package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Tokens;
import dev.loupe.cuda.ptx.text.Type;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Reads a file: its directives and entries. Bodies are read by {@link BodyParser}. */
final class Parser {
  private final Tokens tokens;
  private final Map<String, Module.Entry> entries = new HashMap<>();
  private final List<String> dynamicShared = new ArrayList<>();
  private String target = "";

  Parser(String text) {
    tokens = new Tokens(text);
  }

  Module module() {
    while (!tokens.isEmpty()) {
      int line = tokens.line();
      String directive = tokens.take();
      switch (directive) {
        case ".version", ".address_size" -> tokens.take();
        case ".target" -> target = tokens.take();
        case ".extern" -> externShared();
        case ".visible" -> tokens.expect(".entry");
        default -> throw unknown(line, directive);
      }
      if (directive.equals(".visible")) {
        entry();
      }
    }
    return new Module(target, entries);
  }

  /** {@code .extern .shared .align 128 .b8 smem[];}: the block's dynamic shared memory. */
  private void externShared() {
    tokens.expect(".shared");
    tokens.expect(".align");
    tokens.number();
    tokens.expect(".b8");
    dynamicShared.add(tokens.take());
    tokens.expect("[");
    tokens.expect("]");
    tokens.expect(";");
  }

  private void entry() {
    String name = tokens.take();
    List<Module.Parameter> parameters = new ArrayList<>();
    Map<String, Integer> offsets = new HashMap<>();
    tokens.expect("(");
    while (!tokens.accept(")")) {
      Module.Parameter last = parameters.isEmpty() ? null : parameters.getLast();
      parameters.add(parameter(last, offsets));
      tokens.accept(",");
    }
    int maxThreads = 1024;
    while (!tokens.accept("{")) {
      int line = tokens.line();
      String directive = tokens.take();
      switch (directive) {
        case ".maxntid" -> maxThreads = tokens.number() * more() * more();
        case ".minnctapersm" -> tokens.number(); // how many registers there may be
        default -> throw unknown(line, directive);
      }
    }
    BodyParser body = new BodyParser(tokens, offsets, dynamicShared);
    List<Step> code = body.code();
    entries.put(name, new Module.Entry(name, parameters, body.registers(), maxThreads, code));
  }

  /** {@code , n} or nothing, which is 1. */
  private int more() {
    return tokens.accept(",") ? tokens.number() : 1;
  }

  private Module.Parameter parameter(
      Module.@Nullable Parameter last, Map<String, Integer> offsets) {
    tokens.expect(".param");
    int line = tokens.line();
    String name = tokens.take();
    Type type = Type.of(name.substring(1)).orElseThrow(() -> unknown(line, name));
    int end = last == null ? 0 : last.end();
    int offset = Math.ceilDiv(end, type.bytes()) * type.bytes();
    offsets.put(tokens.take(), offset);
    return new Module.Parameter(offset, type.bytes());
  }

  static PtxException unknown(int line, String directive) {
    return new PtxException(
        "line %d: the interpreter does not know the directive %s".formatted(line, directive));
  }
}
