package dev.loupe.chat;

import com.hubspot.jinjava.interpret.JinjavaInterpreter;
import com.hubspot.jinjava.lib.filter.AdvancedFilter;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** {@code tojson} as transformers has it: Python's json.dumps without ASCII alone. */
final class ToJson implements AdvancedFilter {
  private static final int MOST_DEPTH = 64;

  @Override
  public String getName() {
    return "tojson";
  }

  @Override
  public Object filter(
      @Nullable Object value,
      JinjavaInterpreter interpreter,
      Object[] arguments,
      Map<String, Object> named) {
    if (arguments.length > 0 || !named.isEmpty()) {
      throw new IllegalArgumentException("tojson takes no arguments here");
    }
    StringBuilder json = new StringBuilder();
    write(value, json, 0);
    return json.toString();
  }

  private static void write(@Nullable Object value, StringBuilder json, int depth) {
    Rendering.step();
    if (depth > MOST_DEPTH) {
      throw new Rendering.Ended("tojson of what is nested too deep");
    }
    switch (value) {
      case null -> json.append("null");
      case Boolean flag -> json.append(flag);
      case Number number -> json.append(number);
      case Map<?, ?> map -> {
        String before = "{";
        for (Map.Entry<?, ?> entry : map.entrySet()) {
          json.append(before);
          before = ", ";
          string(String.valueOf(entry.getKey()), json);
          json.append(": ");
          write(entry.getValue(), json, depth + 1);
        }
        json.append(map.isEmpty() ? "{}" : "}");
      }
      case Iterable<?> list -> {
        String before = "";
        json.append('[');
        for (Object each : list) {
          json.append(before);
          before = ", ";
          write(each, json, depth + 1);
        }
        json.append(']');
      }
      default -> string(value.toString(), json);
    }
  }

  private static void string(String text, StringBuilder json) {
    json.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      switch (c) {
        case '"' -> json.append("\\\"");
        case '\\' -> json.append("\\\\");
        case '\n' -> json.append("\\n");
        case '\r' -> json.append("\\r");
        case '\t' -> json.append("\\t");
        case '\b' -> json.append("\\b");
        case '\f' -> json.append("\\f");
        default -> {
          if (c < ' ') {
            json.append("\\u%04x".formatted((int) c));
          } else {
            json.append(c);
          }
        }
      }
    }
    json.append('"');
  }
}
