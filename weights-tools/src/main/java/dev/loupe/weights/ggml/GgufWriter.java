package dev.loupe.weights.ggml;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.io.AtomicFile;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Writes a GGUF file as a stream: first what there will be, then the bytes in that order, in pieces
 * of any size. The file appears under its name when it is whole.
 *
 * <pre>
 * "GGUF", version 3 (u32), tensors (u64), metadata (u64)
 * metadata: key, type (u32), value        strings are a length (u64) and UTF-8
 * tensors: name, dimensions (u32), extents innermost first (u64 each), type (u32), offset (u64)
 * zeros to a multiple of 32
 * data, each tensor's zero-padded to a multiple of 32; offsets count from here
 * </pre>
 *
 * <p>All numbers are little-endian. Source: ggml's docs/gguf.md.
 */
public final class GgufWriter implements AutoCloseable {
  private static final int VERSION = 3;
  private static final int ALIGNMENT = 32; // the format's default, which needs no metadata

  private final AtomicFile file;
  private final List<Entry> entries;
  private int current;
  private long written; // bytes of the current tensor

  /**
   * A tensor to come.
   *
   * @param shape extents, outermost first, as everywhere in Loupe
   */
  public record Entry(String name, GgmlType type, List<Long> shape) {
    public Entry {
      shape = List.copyOf(shape);
      if (shape.getLast() % type.blockElements() != 0) {
        throw new IllegalArgumentException(
            "%s %s: rows of %s hold whole blocks of %d"
                .formatted(name, shape, type, type.blockElements()));
      }
    }

    public long elements() {
      return shape.stream().reduce(1L, Math::multiplyExact);
    }

    long bytes() {
      return type.bytes(elements());
    }
  }

  /** Key-value pairs, in the order in which they are put. */
  public static final class Metadata {
    private enum Type {
      UINT32(4),
      INT32(5),
      FLOAT32(6),
      BOOL(7),
      STRING(8),
      ARRAY(9);

      private final int number;

      Type(int number) {
        this.number = number;
      }
    }

    private final Bytes bytes = new Bytes();
    private int count;

    private Bytes key(String key, Type type) {
      count++;
      bytes.string(key);
      bytes.u32(type.number);
      return bytes;
    }

    private Bytes array(String key, Type type, int length) {
      Bytes to = key(key, Type.ARRAY);
      to.u32(type.number);
      to.u64(length);
      return to;
    }

    public Metadata put(String key, String value) {
      key(key, Type.STRING).string(value);
      return this;
    }

    public Metadata put(String key, int value) {
      key(key, Type.UINT32).u32(value);
      return this;
    }

    public Metadata put(String key, float value) {
      key(key, Type.FLOAT32).u32(Float.floatToRawIntBits(value));
      return this;
    }

    public Metadata put(String key, boolean value) {
      key(key, Type.BOOL).write(value ? 1 : 0);
      return this;
    }

    public Metadata putStrings(String key, List<String> values) {
      Bytes to = array(key, Type.STRING, values.size());
      values.forEach(to::string);
      return this;
    }

    public Metadata putInts(String key, List<Integer> values) {
      Bytes to = array(key, Type.INT32, values.size());
      values.forEach(to::u32);
      return this;
    }
  }

  /** Little-endian numbers, and strings with their length. */
  private static final class Bytes extends ByteArrayOutputStream {
    void u32(int value) {
      for (int shift = 0; shift < Integer.SIZE; shift += Byte.SIZE) {
        write(value >>> shift);
      }
    }

    void u64(long value) {
      u32((int) value);
      u32((int) (value >>> Integer.SIZE));
    }

    void string(String text) {
      byte[] utf8 = text.getBytes(UTF_8);
      u64(utf8.length);
      writeBytes(utf8);
    }

    void pad() {
      while (size() % ALIGNMENT != 0) {
        write(0);
      }
    }
  }

  private GgufWriter(AtomicFile file, List<Entry> entries) {
    this.file = file;
    this.entries = entries;
  }

  /**
   * Starts a file with these tensors, in this order; none of them is empty.
   *
   * @throws IOException if the file can't be written, or its file system has too little room
   * @throws IllegalArgumentException if two tensors have one name
   */
  public static GgufWriter create(Path target, Metadata metadata, List<Entry> entries)
      throws IOException {
    Bytes header = header(metadata, entries);
    AtomicFile file = AtomicFile.create(target);
    boolean started = false;
    try {
      file.requireRoom(
          entries.stream().mapToLong(entry -> padded(entry.bytes())).sum() + header.size());
      file.write(ByteBuffer.wrap(header.toByteArray()));
      started = true;
      return new GgufWriter(file, List.copyOf(entries));
    } finally {
      if (!started) {
        file.close();
      }
    }
  }

  private static Bytes header(Metadata metadata, List<Entry> entries) {
    Bytes to = new Bytes();
    to.writeBytes("GGUF".getBytes(UTF_8));
    to.u32(VERSION);
    to.u64(entries.size());
    to.u64(metadata.count);
    to.writeBytes(metadata.bytes.toByteArray());
    Set<String> names = new HashSet<>();
    long at = 0;
    for (Entry entry : entries) {
      if (!names.add(entry.name)) {
        throw new IllegalArgumentException("two tensors are named " + entry.name);
      }
      to.string(entry.name);
      to.u32(entry.shape.size());
      entry.shape.reversed().forEach(to::u64);
      to.u32(entry.type.number());
      to.u64(at);
      at = padded(at + entry.bytes());
    }
    to.pad();
    return to;
  }

  private static long padded(long bytes) {
    return Math.ceilDiv(bytes, ALIGNMENT) * ALIGNMENT;
  }

  /**
   * Writes the next bytes of a tensor.
   *
   * @param name the tensor whose turn it is
   * @throws IllegalStateException if it is another tensor's turn, or these are more bytes than the
   *     tensor has left
   */
  public void write(String name, ByteBuffer data) throws IOException {
    if (current == entries.size() || !entries.get(current).name.equals(name)) {
      throw new IllegalStateException(
          "%s is written out of turn, %s is next"
              .formatted(name, current == entries.size() ? "nothing" : entries.get(current).name));
    }
    long size = entries.get(current).bytes();
    if (data.remaining() > size - written) {
      throw new IllegalStateException(
          "%s has %d bytes left, given %d".formatted(name, size - written, data.remaining()));
    }
    written += data.remaining();
    file.write(data);
    if (written == size) {
      file.write(ByteBuffer.allocate((int) (padded(size) - size)));
      current++;
      written = 0;
    }
  }

  /**
   * Gives the file its name.
   *
   * @throws IllegalStateException if a tensor lacks bytes
   */
  public void commit() throws IOException {
    if (current != entries.size()) {
      throw new IllegalStateException(
          "%s has %d of its %d bytes"
              .formatted(entries.get(current).name, written, entries.get(current).bytes()));
    }
    file.commit();
  }

  /** A buffer for data, in the byte order of the file. */
  public static ByteBuffer buffer(long bytes) {
    return ByteBuffer.allocate(Math.toIntExact(bytes)).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Ends the writing; without {@link #commit} no file is left. */
  @Override
  public void close() throws IOException {
    file.close();
  }
}
