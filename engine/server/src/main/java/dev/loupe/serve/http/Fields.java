package dev.loupe.serve.http;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.io.StringReader;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import org.jspecify.annotations.Nullable;

/** The fields of a request's JSON object; null is as good as absent. */
public record Fields(JsonObject json) {

  /**
   * Reads a body, strictly (RFC 8259).
   *
   * @throws ApiException if it is no JSON object
   */
  public static Fields parse(byte[] body) {
    if (body.length == 0) {
      throw malformed("it is empty");
    }
    try (JsonReader reader =
        new JsonReader(
            new StringReader(UTF_8.newDecoder().decode(ByteBuffer.wrap(body)).toString()))) {
      reader.setStrictness(Strictness.STRICT);
      JsonElement json = JsonParser.parseReader(reader);
      if (!json.isJsonObject()) {
        throw malformed("it is no object");
      }
      if (reader.peek() != JsonToken.END_DOCUMENT) {
        throw malformed("something follows the object");
      }
      return new Fields(json.getAsJsonObject());
    } catch (CharacterCodingException e) {
      throw malformed("it is not UTF-8");
    } catch (JsonParseException | IOException e) {
      Throwable cause = e.getCause() == null ? e : e.getCause();
      String what = String.valueOf(cause.getMessage()).lines().findFirst().orElse("");
      throw malformed(what);
    }
  }

  private static ApiException malformed(String why) {
    return ApiException.invalid(400, null, "the body is not the JSON object of a request: " + why);
  }

  /** The value of a field, null if it is absent. */
  public @Nullable JsonElement get(String name) {
    JsonElement value = json.get(name);
    return value == null || value.isJsonNull() ? null : value;
  }

  public boolean flag(String name) {
    JsonElement value = get(name);
    if (value == null) {
      return false;
    }
    if (!value.isJsonPrimitive() || !value.getAsJsonPrimitive().isBoolean()) {
      throw wrong(name, value, "true or false");
    }
    return value.getAsBoolean();
  }

  public @Nullable String string(String name) {
    JsonElement value = get(name);
    if (value == null) {
      return null;
    }
    if (!isString(value)) {
      throw wrong(name, value, "a string");
    }
    return value.getAsString();
  }

  public double number(String name, double otherwise) {
    JsonElement value = get(name);
    if (value == null) {
      return otherwise;
    }
    if (!isNumber(value)) {
      throw wrong(name, value, "a number");
    }
    return Double.parseDouble(value.getAsString());
  }

  public long whole(String name, long otherwise, long least, long most) {
    JsonElement value = get(name);
    return value == null ? otherwise : whole(name, value, least, most);
  }

  /** {@code value}, a part of the field {@code name}, as a whole number within bounds. */
  public static long whole(String name, JsonElement value, long least, long most) {
    if (isNumber(value)) {
      try {
        long number = Long.parseLong(value.getAsString());
        if (number >= least && number <= most) {
          return number;
        }
      } catch (NumberFormatException e) {
        // a fraction, or beyond 64 bits
      }
    }
    throw wrong(name, value, "a whole number from %d to %d".formatted(least, most));
  }

  public static boolean isString(JsonElement value) {
    return value.isJsonPrimitive() && value.getAsJsonPrimitive().isString();
  }

  public static boolean isNumber(JsonElement value) {
    return value.isJsonPrimitive() && value.getAsJsonPrimitive().isNumber();
  }

  public static ApiException wrong(String name, JsonElement value, String expected) {
    return ApiException.field(
        name,
        null,
        "%s is %s, not %s".formatted(name, StrictJson.shown(value.toString()), expected));
  }
}
