package dev.loupe.weights.io;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import org.jspecify.annotations.Nullable;

/**
 * Values of JSON that must be of one kind. Gson's own getters turn 2^40 into 0 and a word into
 * false, and throw what nobody expects.
 *
 * <p>All of them throw an {@link IllegalArgumentException} that names the field and what it is.
 */
public final class JsonValue {
  private JsonValue() {}

  /**
   * A string.
   *
   * @param what the field, as the subject of the message
   */
  public static String text(@Nullable JsonElement value, String what) {
    if (value instanceof JsonPrimitive text && text.isString()) {
      return text.getAsString();
    }
    throw wrong(value, what, "a string");
  }

  /** A whole number that an int holds, of either sign. */
  public static int whole(@Nullable JsonElement value, String what) {
    if (value instanceof JsonPrimitive number && number.isNumber()) {
      Long whole = StrictJson.wholeNumber(number.getAsString());
      if (whole != null && whole.intValue() == whole) {
        return whole.intValue();
      }
    }
    throw wrong(value, what, "a whole number of 32 bits");
  }

  /** A finite number. */
  public static double real(@Nullable JsonElement value, String what) {
    if (value instanceof JsonPrimitive number && number.isNumber()) {
      double real = number.getAsDouble();
      if (Double.isFinite(real)) {
        return real;
      }
    }
    throw wrong(value, what, "a number");
  }

  /** True or false. */
  public static boolean flag(@Nullable JsonElement value, String what) {
    if (value instanceof JsonPrimitive flag && flag.isBoolean()) {
      return flag.getAsBoolean();
    }
    throw wrong(value, what, "true or false");
  }

  /** True or false; {@code otherwise} where it is missing or null. */
  public static boolean flag(JsonObject of, String name, boolean otherwise) {
    return isSet(of, name) ? flag(of.get(name), name) : otherwise;
  }

  /**
   * An object.
   *
   * @param what it is called in the message
   * @throws IllegalArgumentException if it is missing or something else
   */
  public static JsonObject object(@Nullable JsonElement value, String what) {
    if (value instanceof JsonObject object) {
      return object;
    }
    throw wrong(value, what, "an object");
  }

  /** An array; throws as {@link #object} does. */
  public static JsonArray array(@Nullable JsonElement value, String what) {
    if (value instanceof JsonArray array) {
      return array;
    }
    throw wrong(value, what, "an array");
  }

  /** Whether a field is there and not null. */
  public static boolean isSet(JsonObject of, String name) {
    JsonElement value = of.get(name);
    return value != null && !value.isJsonNull();
  }

  private static IllegalArgumentException wrong(
      @Nullable JsonElement value, String what, String kind) {
    String is =
        switch (value) {
          case null -> "missing";
          case JsonObject _ -> "an object";
          case JsonArray _ -> "an array";
          case JsonPrimitive text when text.isString() ->
              "\"%s\"".formatted(StrictJson.shown(text.getAsString()));
          default -> StrictJson.shown(value.toString());
        };
    return new IllegalArgumentException("%s is %s, not %s".formatted(what, is, kind));
  }
}
