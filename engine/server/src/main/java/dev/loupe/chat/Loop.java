package dev.loupe.chat;

import com.hubspot.jinjava.interpret.JinjavaInterpreter;
import com.hubspot.jinjava.interpret.TemplateSyntaxException;
import com.hubspot.jinjava.lib.tag.ForTag;
import com.hubspot.jinjava.tree.TagNode;
import com.hubspot.jinjava.tree.parse.TagToken;
import com.hubspot.jinjava.util.ObjectTruthValue;
import java.util.ArrayList;
import java.util.List;
import org.apache.commons.lang3.tuple.Pair;
import org.jspecify.annotations.Nullable;

/**
 * {@code for}, as Jinja has it: the library's would pass over the condition in {@code for x in y if
 * z}, and take a string as one value instead of its characters.
 */
final class Loop extends ForTag {
  private static final long serialVersionUID = 1L;

  @Override
  public String interpretUnchecked(TagNode tag, JinjavaInterpreter interpreter) {
    Pair<List<String>, String> parts = getLoopVarsAndExpression((TagToken) tag.getMaster());
    List<String> names = parts.getLeft();
    String expression = parts.getRight();
    int condition = outside(expression, " if ");
    int end = condition < 0 ? expression.length() : condition;
    if (outside(expression, " recursive") >= 0) {
      throw new TemplateSyntaxException(
          interpreter, tag.getMaster().getImage(), "recursive loops are not supported");
    }
    Object values =
        interpreter.resolveELExpression(expression.substring(0, end), tag.getLineNumber());
    if (values instanceof CharSequence text) {
      values = text.codePoints().mapToObj(Character::toString).toList();
    }
    if (condition >= 0) {
      String wanted = expression.substring(condition + 4);
      values = chosen(tag, interpreter, names, values, wanted);
    }
    return renderForCollection(tag, interpreter, names, values);
  }

  private static List<Object> chosen(
      TagNode tag,
      JinjavaInterpreter interpreter,
      List<String> names,
      @Nullable Object values,
      String wanted) {
    if (names.size() != 1 || (values != null && !(values instanceof Iterable<?>))) {
      throw new TemplateSyntaxException(
          interpreter,
          tag.getMaster().getImage(),
          "a condition in for is supported for one variable and a list");
    }
    List<Object> chosen = new ArrayList<>();
    if (values instanceof Iterable<?> all) {
      for (Object value : all) {
        Rendering.step();
        try (var _ = interpreter.enterNonStackingScope()) {
          interpreter.getContext().put(names.getFirst(), value);
          if (ObjectTruthValue.evaluate(
              interpreter.resolveELExpression(wanted, tag.getLineNumber()))) {
            chosen.add(value);
          }
        }
      }
    }
    return chosen;
  }

  /** Where {@code word} stands outside of quotes and brackets; -1 if nowhere. */
  static int outside(String expression, String word) {
    int depth = 0;
    char quote = 0;
    for (int i = 0; i < expression.length(); i++) {
      char c = expression.charAt(i);
      if (quote != 0) {
        if (c == '\\') {
          i++;
        } else if (c == quote) {
          quote = 0;
        }
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if ("([{".indexOf(c) >= 0) {
        depth++;
      } else if (")]}".indexOf(c) >= 0) {
        depth--;
      } else if (depth == 0 && expression.startsWith(word, i)) {
        return i;
      }
    }
    return -1;
  }
}
