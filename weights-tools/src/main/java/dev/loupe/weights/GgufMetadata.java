package dev.loupe.weights;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The key-value pairs of a GGUF file: each a key, the number of a type, and a value. Values that a
 * GPT-2 doesn't need are stepped over, arrays in arrays included.
 *
 * <p>Source: ggml's docs/gguf.md.
 */
final class GgufMetadata {
  private static final int MAX_PAIRS = 100_000;
  private static final int MAX_KEY = 65_535; // the format's own limit
  private static final int MAX_ELEMENTS = 1 << 20; // twenty times GPT-2's vocabulary
  private static final int MAX_STRING = 1 << 16;
  private static final int MAX_CHARACTERS = 1 << 24; // of all strings that are kept
  private static final int DEEPEST = 8;

  private static final int FLOAT32 = 6;
  private static final int STRING = 8;
  private static final int ARRAY = 9;
  private static final int FLOAT64 = 12;

  private final String file;
  private final Map<String, Object> values = new HashMap<>(); // Long, Double, String or List
  private long characters;

  private GgufMetadata(String file) {
    this.file = file;
  }

  /**
   * Reads so many pairs.
   *
   * @throws CheckpointException if they break the format's rules
   */
  static GgufMetadata read(ByteCursor in, long pairs, String file) throws CheckpointException {
    if (pairs < 0 || pairs > MAX_PAIRS) {
      throw new CheckpointException(
          "%s announces %s metadata, more than %d"
              .formatted(file, Long.toUnsignedString(pairs), MAX_PAIRS));
    }
    GgufMetadata metadata = new GgufMetadata(file);
    Set<String> keys = new HashSet<>();
    for (long i = 0; i < pairs; i++) {
      String key = in.utf8((int) in.count64(MAX_KEY, "the length of a key"), "a key");
      if (!keys.add(key)) {
        throw new CheckpointException("%s gives %s twice".formatted(file, StrictJson.shown(key)));
      }
      int type = in.i32("the type of " + StrictJson.shown(key));
      if (isNeeded(key)) {
        metadata.values.put(key, metadata.value(in, type, key));
      } else {
        metadata.skip(in, type, key, 0);
      }
    }
    return metadata;
  }

  private static boolean isNeeded(String key) {
    return key.startsWith("gpt2.")
        || key.equals("general.architecture")
        || key.equals("general.alignment")
        || key.equals("split.count")
        || (key.startsWith("tokenizer.ggml.")
            && !key.equals("tokenizer.ggml.scores")); // of other tokenizers, and as many as tokens
  }

  private Object value(ByteCursor in, int type, String key) throws CheckpointException {
    String what = StrictJson.shown(key);
    return switch (type) {
      case 0, 7 -> (long) in.u8(what);
      case 1 -> (long) (byte) in.u8(what);
      case 2 -> (long) Short.toUnsignedInt(in.i16(what));
      case 3 -> (long) in.i16(what);
      case 4 -> Integer.toUnsignedLong(in.i32(what));
      case 5 -> (long) in.i32(what);
      case FLOAT32 -> (double) Float.intBitsToFloat(in.i32(what));
      case STRING -> string(in, what);
      case ARRAY -> array(in, key);
      case 10, 11 -> in.i64(what);
      case FLOAT64 -> Double.longBitsToDouble(in.i64(what));
      default -> throw unknownType(in, type, what);
    };
  }

  private String string(ByteCursor in, String what) throws CheckpointException {
    int length = (int) in.count64(MAX_STRING, "the length of " + what);
    characters += length;
    if (characters > MAX_CHARACTERS) {
      throw new CheckpointException(
          "%s: the strings up to %s have more than %d bytes, too many for a GPT-2's tokenizer"
              .formatted(file, what, MAX_CHARACTERS));
    }
    return in.utf8(length, what);
  }

  private List<Object> array(ByteCursor in, String key) throws CheckpointException {
    String what = StrictJson.shown(key);
    int type = in.i32("the type of the elements of " + what);
    int length = (int) in.count64(MAX_ELEMENTS, "the length of " + what);
    if (type == ARRAY) {
      throw new CheckpointException("%s: %s is an array of arrays".formatted(file, what));
    }
    List<Object> elements = new ArrayList<>();
    for (int i = 0; i < length; i++) {
      elements.add(value(in, type, key));
    }
    return elements;
  }

  private void skip(ByteCursor in, int type, String key, int depth) throws CheckpointException {
    String what = StrictJson.shown(key);
    switch (type) {
      case STRING -> in.skip(in.i64("the length of " + what), what);
      case ARRAY -> {
        if (depth == DEEPEST) {
          throw new CheckpointException(
              "%s: %s is nested deeper than %d levels".formatted(file, what, DEEPEST));
        }
        int of = in.i32("the type of the elements of " + what);
        long length = in.i64("the length of " + what);
        if (of == STRING || of == ARRAY) {
          for (long i = 0; Long.compareUnsigned(i, length) < 0; i++) {
            skip(in, of, key, depth + 1);
          }
        } else {
          int size = size(in, of, what);
          // more elements than a file has bytes must not wrap around to few
          in.skip(length < 0 || length > Long.MAX_VALUE / size ? -1 : length * size, what);
        }
      }
      default -> in.skip(size(in, type, what), what);
    }
  }

  private int size(ByteCursor in, int type, String what) throws CheckpointException {
    return switch (type) {
      case 0, 1, 7 -> 1;
      case 2, 3 -> 2;
      case 4, 5, FLOAT32 -> 4;
      case 10, 11, FLOAT64 -> 8;
      default -> throw unknownType(in, type, what);
    };
  }

  private CheckpointException unknownType(ByteCursor in, int type, String what) {
    return new CheckpointException(
        "%s: before byte %d, %s has the type %s, which GGUF does not know"
            .formatted(file, in.position(), what, Integer.toUnsignedString(type)));
  }

  /** A whole number, if there is one under this key. */
  OptionalLong whole(String key) throws CheckpointException {
    return switch (values.get(key)) {
      case null -> OptionalLong.empty();
      case Long number -> OptionalLong.of(number);
      case Object _ -> throw wrong(key, "a whole number");
    };
  }

  OptionalDouble real(String key) throws CheckpointException {
    return switch (values.get(key)) {
      case null -> OptionalDouble.empty();
      case Double number -> OptionalDouble.of(number);
      case Object _ -> throw wrong(key, "a number with a fraction");
    };
  }

  @Nullable String string(String key) throws CheckpointException {
    return switch (values.get(key)) {
      case null -> null;
      case String text -> text;
      case Object _ -> throw wrong(key, "a string");
    };
  }

  /** An array of this kind of elements, if there is one under this key. */
  <T> @Nullable List<T> list(String key, Class<T> of) throws CheckpointException {
    Object value = values.get(key);
    if (value == null) {
      return null;
    }
    if (!(value instanceof List<?> list) || !list.stream().allMatch(of::isInstance)) {
      throw wrong(key, "an array of " + (of == String.class ? "strings" : "whole numbers"));
    }
    return list.stream().map(of::cast).toList();
  }

  private CheckpointException wrong(String key, String expected) {
    return new CheckpointException("%s: %s is not %s".formatted(file, key, expected));
  }
}
