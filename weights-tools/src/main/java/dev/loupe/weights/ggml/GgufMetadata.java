package dev.loupe.weights.ggml;

import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.StrictJson;
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
  private static final int MAX_STRING = 1 << 20; // a chat template may have some 10 KB
  private static final int MAX_CHARACTERS = 1 << 24; // of all strings that are kept
  private static final int DEEPEST = 8;

  private static final Set<String> NUMBERS =
      Set.of(
          "general.alignment",
          "split.count",
          "gpt2.context_length",
          "gpt2.embedding_length",
          "gpt2.feed_forward_length",
          "gpt2.block_count",
          "gpt2.attention.head_count",
          "gpt2.attention.layer_norm_epsilon",
          "tokenizer.ggml.bos_token_id",
          "tokenizer.ggml.eos_token_id",
          "tokenizer.ggml.eot_token_id",
          "tokenizer.ggml.eom_token_id",
          "tokenizer.ggml.unknown_token_id",
          "tokenizer.ggml.add_bos_token",
          "tokenizer.ggml.add_space_prefix");
  private static final Set<String> TEXTS =
      Set.of(
          "general.architecture",
          "tokenizer.ggml.model",
          "tokenizer.ggml.pre",
          GgufReader.CHAT_TEMPLATE);

  /** All that may be long: whatever else a file holds takes no memory. */
  private static final Set<String> ARRAYS =
      Set.of("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type");

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
   * Reads their number and so many pairs.
   *
   * @throws CheckpointException if they break the format's rules
   */
  static GgufMetadata read(ByteReader in, String file) throws CheckpointException {
    int pairs = in.count64(MAX_PAIRS, "the number of metadata");
    GgufMetadata metadata = new GgufMetadata(file);
    Set<String> keys = new HashSet<>();
    for (int i = 0; i < pairs; i++) {
      String key = in.utf8(in.count64(MAX_KEY, "the length of a key"), "a key");
      String what = StrictJson.shown(key);
      if (!keys.add(key)) {
        throw new CheckpointException("%s gives %s twice".formatted(file, what));
      }
      int type = in.u32();
      if (isNeeded(key)) {
        if (type == ARRAY && !ARRAYS.contains(key)) {
          throw metadata.wrong(key, "one value but an array");
        }
        metadata.values.put(key, metadata.value(in, type, what));
      } else {
        metadata.skip(in, type, what, 0);
      }
    }
    return metadata;
  }

  private static boolean isNeeded(String key) {
    return NUMBERS.contains(key) || TEXTS.contains(key) || ARRAYS.contains(key);
  }

  private Object value(ByteReader in, int type, String what) throws CheckpointException {
    return switch (type) {
      case 0, 7 -> (long) in.u8();
      case 1 -> (long) (byte) in.u8();
      case 2 -> (long) Short.toUnsignedInt(in.u16());
      case 3 -> (long) in.u16();
      case 4 -> Integer.toUnsignedLong(in.u32());
      case 5 -> (long) in.u32();
      case FLOAT32 -> (double) Float.intBitsToFloat(in.u32());
      case STRING -> string(in, what);
      case ARRAY -> array(in, what);
      case 10, 11 -> in.u64();
      case FLOAT64 -> Double.longBitsToDouble(in.u64());
      default -> throw unknownType(in, type, what);
    };
  }

  private String string(ByteReader in, String what) throws CheckpointException {
    int length = in.count64(MAX_STRING, "the length of " + what);
    characters += length;
    if (characters > MAX_CHARACTERS) {
      throw new CheckpointException(
          "%s: the strings up to %s have more than %d bytes, too many for a GPT-2's tokenizer"
              .formatted(file, what, MAX_CHARACTERS));
    }
    return in.utf8(length, what);
  }

  private List<Object> array(ByteReader in, String what) throws CheckpointException {
    int type = in.u32();
    int length = in.count64(MAX_ELEMENTS, "the length of " + what);
    if (type == ARRAY) {
      throw in.damaged(in.at(), what + " is an array of arrays");
    }
    List<Object> elements = new ArrayList<>();
    for (int i = 0; i < length; i++) {
      elements.add(value(in, type, what));
    }
    return elements;
  }

  private void skip(ByteReader in, int type, String what, int depth) throws CheckpointException {
    if (type != ARRAY) {
      var _ = in.skip(type == STRING ? in.u64() : size(in, type, what));
      return;
    }
    if (depth == DEEPEST) {
      throw in.damaged(in.at(), "%s is nested deeper than %d levels".formatted(what, DEEPEST));
    }
    int of = in.u32();
    long length = in.u64();
    if (of == STRING || of == ARRAY) {
      for (long i = 0; Long.compareUnsigned(i, length) < 0; i++) {
        skip(in, of, what, depth + 1);
      }
    } else {
      int size = size(in, of, what);
      // more elements than a file has bytes must not wrap around to few
      var _ = in.skip(length < 0 || length > Long.MAX_VALUE / size ? -1 : length * size);
    }
  }

  private static int size(ByteReader in, int type, String what) throws CheckpointException {
    return switch (type) {
      case 0, 1, 7 -> 1;
      case 2, 3 -> 2;
      case 4, 5, FLOAT32 -> 4;
      case 10, 11, FLOAT64 -> 8;
      default -> throw unknownType(in, type, what);
    };
  }

  private static CheckpointException unknownType(ByteReader in, int type, String what) {
    return in.damaged(
        in.at(), "%s is of the unknown type %s".formatted(what, Integer.toUnsignedString(type)));
  }

  /** A whole number, if there is one under this key. */
  OptionalLong whole(String key) throws CheckpointException {
    return switch (values.get(key)) {
      case null -> OptionalLong.empty();
      case Long number -> OptionalLong.of(number);
      case Object _ -> throw wrong(key, "a whole number");
    };
  }

  /**
   * A whole number that an int holds.
   *
   * @param otherwise where there is none under this key
   */
  int whole32(String key, int otherwise) throws CheckpointException {
    OptionalLong value = whole(key);
    if (value.isEmpty()) {
      return otherwise;
    }
    if ((int) value.getAsLong() != value.getAsLong()) {
      throw new CheckpointException(
          "%s: %s is %s, more than any GPT-2 has"
              .formatted(file, key, Long.toUnsignedString(value.getAsLong())));
    }
    return (int) value.getAsLong();
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
