package dev.loupe.chat;

import com.hubspot.jinjava.interpret.JinjavaInterpreter;
import com.hubspot.jinjava.lib.filter.LengthFilter;
import org.jspecify.annotations.Nullable;

/** {@code length}, of a text in characters as Python counts them. */
final class Length extends LengthFilter {
  private final String name;

  Length(String name) {
    this.name = name;
  }

  @Override
  public String getName() {
    return name;
  }

  @Override
  public @Nullable Object filter(
      @Nullable Object value, JinjavaInterpreter interpreter, String... arguments) {
    return value instanceof CharSequence text
        ? (Object) text.toString().codePointCount(0, text.length())
        : super.filter(value, interpreter, arguments);
  }
}
