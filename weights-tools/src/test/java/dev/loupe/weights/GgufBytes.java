package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;

/** Puts a GGUF file together by its specification, sound or not. */
public final class GgufBytes {
  public int version = 3;
  public int alignment = 32;
  private final Out metadata = new Out();
  private int pairs;
  private final Out table = new Out();
  private final Out data = new Out();
  private int tensors;

  /** Little-endian. */
  public static final class Out extends ByteArrayOutputStream {
    public Out number(long value, int bytes) {
      for (int i = 0; i < bytes; i++) {
        write((int) (value >> (8 * i)));
      }
      return this;
    }

    public Out text(String text) {
      byte[] utf8 = text.getBytes(UTF_8);
      number(utf8.length, 8).writeBytes(utf8);
      return this;
    }
  }

  /** A pair whose value is written by hand. */
  public Out pair(String key, int type) {
    pairs++;
    return metadata.text(key).number(type, 4);
  }

  public GgufBytes text(String key, String value) {
    var _ = pair(key, 8).text(value);
    return this;
  }

  public GgufBytes u32(String key, int value) {
    var _ = pair(key, 4).number(value, 4);
    return this;
  }

  GgufBytes f32(String key, float value) {
    var _ = pair(key, 6).number(Float.floatToRawIntBits(value), 4);
    return this;
  }

  public GgufBytes texts(String key, String... values) {
    Out out = pair(key, 9).number(8, 4).number(values.length, 8);
    for (String value : values) {
      var _ = out.text(value);
    }
    return this;
  }

  public GgufBytes ints(String key, int... values) {
    Out out = pair(key, 9).number(5, 4).number(values.length, 8);
    for (int value : values) {
      var _ = out.number(value, 4);
    }
    return this;
  }

  public GgufBytes tensor(String name, int type, byte[] bytes, long... innermostFirst) {
    tensors++;
    var _ = table.text(name).number(innermostFirst.length, 4);
    for (long extent : innermostFirst) {
      var _ = table.number(extent, 8);
    }
    var _ = table.number(type, 4).number(data.size(), 8);
    data.writeBytes(bytes);
    pad(data);
    return this;
  }

  public byte[] bytes() {
    Out out = new Out();
    out.writeBytes("GGUF".getBytes(UTF_8));
    var _ = out.number(version, 4).number(tensors, 8).number(pairs, 8);
    out.writeBytes(metadata.toByteArray());
    out.writeBytes(table.toByteArray());
    pad(out);
    out.writeBytes(data.toByteArray());
    return out.toByteArray();
  }

  private void pad(Out out) {
    while (out.size() % alignment != 0) {
      out.write(0);
    }
  }
}
