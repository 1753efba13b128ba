package dev.loupe.chat;

import com.hubspot.jinjava.el.JinjavaInterpreterResolver;
import com.hubspot.jinjava.lib.exptest.ExpTest;
import com.hubspot.jinjava.lib.filter.Filter;
import com.hubspot.jinjava.util.ForLoop;
import java.beans.FeatureDescriptor;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import jinjava.javax.el.ELContext;
import jinjava.javax.el.ELException;
import jinjava.javax.el.ELResolver;
import org.jspecify.annotations.Nullable;

/**
 * What a template may do with a value: take an item of a map or a list, and call those of Python's
 * methods of str, dict and list that are listed here. Java's own methods can't be reached, whatever
 * their names are.
 */
final class PythonMethods extends ELResolver {
  @Override
  public @Nullable Object getValue(ELContext context, @Nullable Object base, Object property) {
    if (base == null) {
      return null; // a variable, which others know
    }
    Rendering.step();
    context.setPropertyResolved(true);
    if (base instanceof Map<?, ?> map) {
      return map.get(property instanceof CharSequence name ? name.toString() : property);
    }
    if (base instanceof List<?> list) {
      int index = index(property, list.size());
      return index < 0 ? null : list.get(index);
    }
    if (base instanceof CharSequence text) {
      int[] characters = text.codePoints().toArray();
      int index = index(property, characters.length);
      return index < 0 ? null : Character.toString(characters[index]);
    }
    if (base instanceof ForLoop loop) {
      return loop(loop, String.valueOf(property));
    }
    return null; // undefined, as in Jinja
  }

  /** The place of an item, -1 if there is none; the library gives numbers as texts at times. */
  private static int index(Object property, int size) {
    String number = property.toString();
    if (!number.matches("-?[0-9]{1,9}")) {
      return -1;
    }
    int index = Integer.parseInt(number);
    int fromStart = index < 0 ? index + size : index;
    return fromStart < 0 || fromStart >= size ? -1 : fromStart;
  }

  private static @Nullable Object loop(ForLoop loop, String property) {
    return switch (property) {
      case "index" -> loop.getIndex();
      case "index0" -> loop.getIndex0();
      case "revindex" -> loop.getRevindex();
      case "revindex0" -> loop.getRevindex0();
      case "first" -> loop.isFirst();
      case "last" -> loop.isLast();
      case "length" -> loop.getLength();
      case "depth" -> loop.getDepth();
      case "depth0" -> loop.getDepth0();
      default -> throw new ELException("loop has no " + property);
    };
  }

  @Override
  public @Nullable Object invoke(
      ELContext context,
      Object base,
      Object method,
      Class<?> @Nullable [] types,
      @Nullable Object @Nullable [] given) {
    Rendering.step();
    if ((base instanceof Filter && "filter".equals(method))
        || (base instanceof ExpTest
            && ("evaluate".equals(method) || "evaluateNegated".equals(method)))) {
      // what | and is come to
      return JinjavaInterpreterResolver.DEFAULT_RESOLVER_READ_ONLY.invoke(
          context, base, method, types, given);
    }
    context.setPropertyResolved(true);
    @Nullable Object[] arguments = given == null ? new Object[0] : given;
    String name = String.valueOf(method);
    return switch (base) {
      case CharSequence text -> ofText(text.toString(), name, arguments);
      case Map<?, ?> map -> ofMap(map, name, arguments);
      case List<?> list -> ofList(list, name, arguments);
      case ForLoop loop when name.equals("cycle") && arguments.length > 0 ->
          arguments[loop.getIndex0() % arguments.length];
      case null, default -> throw no(name);
    };
  }

  private static ELException no(String name) {
    return new ELException("there is no method %s here".formatted(name));
  }

  private static @Nullable Object ofText(String text, String name, @Nullable Object[] arguments) {
    int n = arguments.length;
    String first = n > 0 && arguments[0] != null ? arguments[0].toString() : null;
    return switch (name) {
      case "strip" -> stripEnd(stripStart(text, first), first);
      case "lstrip" -> stripStart(text, first);
      case "rstrip" -> stripEnd(text, first);
      case "lower" -> text.toLowerCase(Locale.ROOT);
      case "upper" -> text.toUpperCase(Locale.ROOT);
      case "capitalize" -> capitalize(text);
      case "title" -> title(text);
      case "startswith" -> anyOf(arguments).stream().anyMatch(text::startsWith);
      case "endswith" -> anyOf(arguments).stream().anyMatch(text::endsWith);
      case "split" -> split(text, first, n > 1 ? whole(arguments[1]) : -1);
      case "splitlines" -> text.isEmpty() ? List.of() : text.lines().toList();
      case "replace" -> replace(text, required(first), required(n > 1 ? arguments[1] : null), n);
      case "find" -> (long) text.indexOf(required(first));
      case "count" -> (long) split(text, required(first), -1).size() - 1;
      case "removeprefix" ->
          text.startsWith(required(first)) ? text.substring(required(first).length()) : text;
      case "removesuffix" ->
          text.endsWith(required(first))
              ? text.substring(0, text.length() - required(first).length())
              : text;
      case "isdigit" -> !text.isEmpty() && text.codePoints().allMatch(Character::isDigit);
      default -> throw no(name);
    };
  }

  private static String required(@Nullable Object argument) {
    if (argument == null) {
      throw new ELException("a method of a text lacks an argument");
    }
    return argument.toString();
  }

  private static int whole(@Nullable Object argument) {
    return argument instanceof Number number ? Math.clamp(number.longValue(), -1, 1 << 20) : -1;
  }

  private static boolean isIn(int character, @Nullable String set) {
    return set == null
        ? Character.isWhitespace(character) || Character.isSpaceChar(character)
        : set.indexOf(character) >= 0;
  }

  private static String stripStart(String text, @Nullable String set) {
    int start = 0;
    while (start < text.length() && isIn(text.codePointAt(start), set)) {
      start += Character.charCount(text.codePointAt(start));
    }
    return text.substring(start);
  }

  private static String stripEnd(String text, @Nullable String set) {
    int end = text.length();
    while (end > 0 && isIn(text.codePointBefore(end), set)) {
      end -= Character.charCount(text.codePointBefore(end));
    }
    return text.substring(0, end);
  }

  private static String capitalize(String text) {
    if (text.isEmpty()) {
      return text;
    }
    int end = Character.charCount(text.codePointAt(0));
    return text.substring(0, end).toUpperCase(Locale.ROOT)
        + text.substring(end).toLowerCase(Locale.ROOT);
  }

  private static String title(String text) {
    StringBuilder title = new StringBuilder();
    boolean inWord = false;
    for (int character : text.codePoints().toArray()) {
      title.appendCodePoint(
          inWord ? Character.toLowerCase(character) : Character.toTitleCase(character));
      inWord = Character.isLetter(character);
    }
    return title.toString();
  }

  /** The texts of an argument that is one, or a list of them. */
  private static List<String> anyOf(@Nullable Object[] arguments) {
    if (arguments.length == 1 && arguments[0] instanceof List<?> list) {
      return list.stream().map(Objects::toString).toList();
    }
    return List.of(required(arguments.length == 0 ? null : arguments[0]));
  }

  private static List<String> split(String text, @Nullable String separator, int most) {
    List<String> parts = new ArrayList<>();
    if (separator == null) {
      if (most >= 0) {
        throw new ELException("split has a limit without a separator");
      }
      for (String part : text.strip().split("\\s+", -1)) {
        if (!part.isEmpty()) {
          parts.add(part);
        }
      }
      return parts;
    }
    if (separator.isEmpty()) {
      throw new ELException("the separator of split is empty");
    }
    int done = 0;
    int at = text.indexOf(separator);
    while (at >= 0 && (most < 0 || parts.size() < most)) {
      parts.add(text.substring(done, at));
      done = at + separator.length();
      at = text.indexOf(separator, done);
    }
    parts.add(text.substring(done));
    return parts;
  }

  private static String replace(String text, String old, String by, int arguments) {
    if (arguments > 2) {
      throw new ELException("replace has no limit here");
    }
    if ((long) text.length() * (by.length() + 1) > 1 << 22 && by.length() > old.length()) {
      throw new ELException("replace makes a text that is too long");
    }
    return text.replace(old, by);
  }

  private static @Nullable Object ofMap(Map<?, ?> map, String name, @Nullable Object[] arguments) {
    return switch (name) {
      case "get" -> {
        String key = required(arguments.length == 0 ? null : arguments[0]);
        yield map.containsKey(key) ? map.get(key) : arguments.length > 1 ? arguments[1] : null;
      }
      case "items" -> List.copyOf(map.entrySet());
      case "keys" -> new ArrayList<Object>(map.keySet());
      case "values" -> new ArrayList<Object>(map.values());
      default -> throw no(name);
    };
  }

  @SuppressWarnings("unchecked")
  private static @Nullable Object ofList(List<?> list, String name, @Nullable Object[] arguments) {
    return switch (name) {
      case "append" -> {
        if (arguments.length != 1) {
          throw no(name);
        }
        ((List<@Nullable Object>) list).add(arguments[0]); // the library's, which has a limit
        yield null;
      }
      case "index" -> (long) list.indexOf(arguments.length == 0 ? null : arguments[0]);
      default -> throw no(name);
    };
  }

  @Override
  public Class<?> getType(ELContext context, @Nullable Object base, Object property) {
    return Object.class;
  }

  @Override
  public void setValue(
      ELContext context, @Nullable Object base, Object property, @Nullable Object value) {
    throw new ELException("values can't be changed");
  }

  @Override
  public boolean isReadOnly(ELContext context, @Nullable Object base, Object property) {
    return true;
  }

  @Override
  public Iterator<FeatureDescriptor> getFeatureDescriptors(
      ELContext context, @Nullable Object base) {
    return Collections.emptyIterator();
  }

  @Override
  public Class<?> getCommonPropertyType(ELContext context, @Nullable Object base) {
    return Object.class;
  }
}
