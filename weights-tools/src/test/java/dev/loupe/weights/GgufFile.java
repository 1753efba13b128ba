package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Reads a GGUF file by its specification, in the plainest way. */
final class GgufFile {
  record Tensor(List<Long> innermostFirst, int type, long offset) {}

  final Map<String, Object> metadata = new LinkedHashMap<>();
  final Map<String, Tensor> tensors = new LinkedHashMap<>();
  final int dataStart;
  private final ByteBuffer in;

  GgufFile(Path file) throws IOException {
    in = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
    if (in.getInt() != 0x46554747 || in.getInt() != 3) {
      throw new IllegalStateException("no GGUF of version 3");
    }
    long tensorCount = in.getLong();
    long pairs = in.getLong();
    for (long i = 0; i < pairs; i++) {
      String key = string();
      if (metadata.put(key, value(in.getInt())) != null) {
        throw new IllegalStateException(key + " appears twice");
      }
    }
    for (long i = 0; i < tensorCount; i++) {
      String name = string();
      int dimensions = in.getInt();
      List<Long> extents = new ArrayList<>();
      for (int d = 0; d < dimensions; d++) {
        extents.add(in.getLong());
      }
      tensors.put(name, new Tensor(extents, in.getInt(), in.getLong()));
    }
    dataStart = (in.position() + 31) / 32 * 32;
  }

  private String string() {
    byte[] utf8 = new byte[(int) in.getLong()];
    in.get(utf8);
    return new String(utf8, UTF_8);
  }

  private Object value(int type) {
    return switch (type) {
      case 4, 5 -> in.getInt();
      case 6 -> in.getFloat();
      case 7 -> in.get() != 0;
      case 8 -> string();
      case 9 -> {
        int of = in.getInt();
        long length = in.getLong();
        List<Object> values = new ArrayList<>();
        for (long i = 0; i < length; i++) {
          values.add(value(of));
        }
        yield values;
      }
      default -> throw new IllegalStateException("type " + type);
    };
  }

  Tensor tensor(String name) {
    return Objects.requireNonNull(tensors.get(name), name);
  }

  List<?> list(String key) {
    return (List<?>) Objects.requireNonNull(metadata.get(key), key);
  }

  long fileBytes() {
    return in.capacity();
  }

  /** The values of a tensor, innermost extent fastest. */
  float[] values(String name) {
    Tensor tensor = tensor(name);
    long n = tensor.innermostFirst.stream().reduce(1L, (a, b) -> a * b);
    float[] values = new float[(int) n];
    int at = dataStart + (int) tensor.offset;
    for (int i = 0; i < n; i++) {
      values[i] =
          switch (tensor.type) {
            case 0 -> in.getFloat(at + 4 * i);
            case 1 -> Float.float16ToFloat(in.getShort(at + 2 * i));
            case 30 -> Float.intBitsToFloat(in.getShort(at + 2 * i) << 16);
            case 8 -> {
              int block = at + 34 * (i / 32);
              yield Float.float16ToFloat(in.getShort(block)) * in.get(block + 2 + i % 32);
            }
            default -> throw new IllegalStateException("type " + tensor.type);
          };
    }
    return values;
  }
}
