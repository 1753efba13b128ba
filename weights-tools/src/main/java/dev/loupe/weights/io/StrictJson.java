package dev.loupe.weights.io;

import static java.nio.charset.StandardCharsets.US_ASCII;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import com.google.gson.stream.MalformedJsonException;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.math.BigDecimal;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Reads JSON that may be hostile: RFC 8259 to the letter, valid UTF-8, nested at most {@value
 * #DEEPEST} levels, no string over {@value #LONGEST_STRING} bytes (and, by Gson, no number over
 * 1,023 characters), so that neither stack nor heap can run out.
 *
 * <p>One thing is allowed beyond the RFC, because Python's json writes it: NaN, Infinity and
 * -Infinity as values. They are given as strings of that text, so a field that calls for a number
 * refuses them.
 */
public final class StrictJson {
  /** Values in a document that is kept whole; each takes some hundred bytes. */
  public static final int MOST_VALUES = 1 << 20;

  private static final int DEEPEST = 32;
  private static final int LONGEST_STRING = 4 << 20;
  private static final int LONGEST_SHOWN = 60;
  private static final Pattern WHOLE_NUMBER = Pattern.compile("-?[0-9]{1,18}");

  private StrictJson() {}

  /** Takes values from a document in the order in which they are there. */
  public interface Body<T> {
    T read(JsonReader in) throws IOException;
  }

  /**
   * Parses one whole document.
   *
   * @param what the document, as the subject of the error messages
   * @throws CheckpointException if it isn't strict JSON, or if {@code body} throws one
   */
  public static <T> T parse(String what, MemorySegment utf8, Body<T> body)
      throws CheckpointException {
    JsonReader in =
        new JsonReader(
            new InputStreamReader(
                new BoundedStrings(what, utf8), StandardCharsets.UTF_8.newDecoder()));
    in.setStrictness(Strictness.STRICT);
    in.setNestingLimit(DEEPEST);
    try {
      T value = body.read(in);
      requireEnd(in, what);
      return value;
    } catch (CheckpointException e) {
      throw e;
    } catch (CharacterCodingException e) {
      throw new CheckpointException(what + " is not valid UTF-8", e);
    } catch (EOFException e) {
      throw new CheckpointException(what + " ends in the middle of its JSON", e);
    } catch (MalformedJsonException e) {
      String fault =
          String.valueOf(e.getMessage()).contains("Nesting limit")
              ? " is nested deeper than %d levels at ".formatted(DEEPEST)
              : " is not valid JSON at ";
      throw new CheckpointException(what + fault + shown(in.getPath()), e);
    } catch (IOException | IllegalStateException | NumberFormatException e) {
      throw new CheckpointException(what + " can't be parsed at " + shown(in.getPath()), e);
    }
  }

  /** A strict reader does not look at what follows: it says that this is malformed. */
  private static void requireEnd(JsonReader in, String what) throws IOException {
    try {
      if (in.peek() == JsonToken.END_DOCUMENT) {
        return;
      }
    } catch (MalformedJsonException e) {
      throw new CheckpointException(what + " goes on after its JSON", e);
    }
    throw new CheckpointException(what + " goes on after its JSON");
  }

  /**
   * Takes a value with all that is in it. Of a name that is given twice the last counts.
   *
   * @param what the value, as the subject of the error message
   * @param most values that a sound one has, itself among them
   * @throws CheckpointException if there are more
   */
  public static JsonElement tree(JsonReader in, String what, int most) throws IOException {
    return tree(in, what, new int[] {most});
  }

  private static JsonElement tree(JsonReader in, String what, int[] left) throws IOException {
    if (--left[0] < 0) {
      throw new CheckpointException(what + " holds more values than can make sense");
    }
    return switch (in.peek()) {
      case BEGIN_OBJECT -> {
        JsonObject object = new JsonObject();
        in.beginObject();
        while (in.hasNext()) {
          object.add(in.nextName(), tree(in, what, left)); // no deeper than DEEPEST
        }
        in.endObject();
        yield object;
      }
      case BEGIN_ARRAY -> {
        JsonArray array = new JsonArray();
        in.beginArray();
        while (in.hasNext()) {
          array.add(tree(in, what, left));
        }
        in.endArray();
        yield array;
      }
      case STRING -> new JsonPrimitive(in.nextString());
      case NUMBER -> {
        String text = in.nextString();
        Long whole = wholeNumber(text);
        yield new JsonPrimitive(whole != null ? (Number) whole : new BigDecimal(text));
      }
      case BOOLEAN -> new JsonPrimitive(in.nextBoolean());
      default -> {
        in.nextNull();
        yield JsonNull.INSTANCE;
      }
    };
  }

  /** Enters an object, or says that {@code what} isn't one. */
  public static void beginObject(JsonReader in, String what) throws IOException {
    expect(in, JsonToken.BEGIN_OBJECT, what, "an object");
    in.beginObject();
  }

  /** Enters an array, or says that {@code what} isn't one. */
  public static void beginArray(JsonReader in, String what) throws IOException {
    expect(in, JsonToken.BEGIN_ARRAY, what, "an array");
    in.beginArray();
  }

  /** Takes a string, or says that {@code what} isn't one. */
  public static String string(JsonReader in, String what) throws IOException {
    expect(in, JsonToken.STRING, what, "a string");
    return in.nextString();
  }

  /** Takes a number that is 0, 1, 2 ... and fits a long, or says what is wrong with it. */
  public static long natural(JsonReader in, String what) throws IOException {
    expect(in, JsonToken.NUMBER, what, "a whole number");
    String text = in.nextString();
    Long value = wholeNumber(text);
    if (value == null || value < 0 || text.startsWith("-")) {
      throw new CheckpointException(
          "%s is %s, not a whole number from 0 to 999999999999999999".formatted(what, shown(text)));
    }
    return value;
  }

  /** Takes a whole number of either sign that fits a long, or says what is wrong with it. */
  public static long whole(JsonReader in, String what) throws IOException {
    Long value = in.peek() == JsonToken.NUMBER ? wholeNumber(in.nextString()) : null;
    if (value == null) {
      throw new CheckpointException(what + " is not a whole number of at most 18 digits");
    }
    return value;
  }

  /** The value of a JSON number without fraction or exponent and of at most 18 digits, or null. */
  public static @Nullable Long wholeNumber(String text) {
    return WHOLE_NUMBER.matcher(text).matches() ? Long.valueOf(text) : null;
  }

  private static void expect(JsonReader in, JsonToken token, String what, String kind)
      throws IOException {
    if (in.peek() != token) {
      throw new CheckpointException(what + " is not " + kind);
    }
  }

  /** Text from a file as it may stand in a message: short, one line, no control characters. */
  public static String shown(String text) {
    StringBuilder shown = new StringBuilder();
    text.codePoints()
        .limit(LONGEST_SHOWN)
        .map(c -> Character.isISOControl(c) || Character.getType(c) == Character.FORMAT ? '?' : c)
        .forEach(shown::appendCodePoint);
    return text.codePointCount(0, text.length()) > LONGEST_SHOWN ? shown + "..." : shown.toString();
  }

  /**
   * The bytes of a segment, with Python's NaN and infinities in quotes; refuses to go on in a
   * string that is too long.
   */
  private static final class BoundedStrings extends InputStream {
    private static final List<byte[]> NOT_FINITE =
        Stream.of("NaN", "Infinity", "-Infinity").map(text -> text.getBytes(US_ASCII)).toList();

    private final String what;
    private final MemorySegment bytes;
    private byte[] quoted = {}; // what comes before the byte at hand
    private int given; // bytes of it
    private long at;
    private boolean inString;
    private boolean escaped;
    private int length;

    BoundedStrings(String what, MemorySegment bytes) {
      this.what = what;
      this.bytes = bytes;
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
    }

    @Override
    public int read(byte[] to, int offset, int count) throws IOException {
      if (given == quoted.length) {
        int n = stretch(to, offset, count);
        if (n != 0) {
          return n;
        }
      }
      int n = Math.min(count, quoted.length - given);
      System.arraycopy(quoted, given, to, offset, n);
      given += n;
      return n;
    }

    /** Gives what comes up to a number that is not finite, -1 at the end. */
    private int stretch(byte[] to, int offset, int count) throws IOException {
      int most = (int) Math.min(count, bytes.byteSize() - at);
      if (most == 0) {
        return -1;
      }
      MemorySegment.copy(bytes, ValueLayout.JAVA_BYTE, at, to, offset, most);
      for (int n = 0; n < most; n++) {
        byte b = to[offset + n];
        if (!inString && (b == 'N' || b == 'I' || b == '-') && quote(at + n)) {
          return n;
        }
        track(b);
      }
      at += most;
      return most;
    }

    /** Steps over a number that is not finite, to be given in quotes; false if there is none. */
    private boolean quote(long from) {
      for (byte[] text : NOT_FINITE) {
        if (bytes.byteSize() - from >= text.length && InputFile.isAt(bytes, from, text)) {
          quoted = new byte[text.length + 2];
          quoted[0] = '"';
          System.arraycopy(text, 0, quoted, 1, text.length);
          quoted[text.length + 1] = '"';
          given = 0;
          at = from + text.length;
          return true;
        }
      }
      return false;
    }

    private void track(byte b) throws CheckpointException {
      if (!inString) {
        inString = b == '"';
        length = 0;
        return;
      }
      if (++length > LONGEST_STRING) {
        throw new CheckpointException(
            "%s holds a string of more than %d bytes".formatted(what, LONGEST_STRING));
      }
      if (escaped) {
        escaped = false;
      } else if (b == '\\') {
        escaped = true;
      } else if (b == '"') {
        inString = false;
      }
    }
  }
}
