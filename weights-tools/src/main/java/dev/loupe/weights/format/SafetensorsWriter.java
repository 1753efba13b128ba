package dev.loupe.weights.format;

import com.google.gson.stream.JsonWriter;
import dev.loupe.weights.io.AtomicFile;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.io.StringWriter;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Writes a safetensors file as a stream: first what there will be, then the bytes in that order, in
 * pieces of any size. The file appears under its name when it is whole.
 *
 * <pre>{@code
 * try (SafetensorsWriter out = SafetensorsWriter.create(file, entries)) {
 *   for (Entry entry : entries) {
 *     out.write(entry.name(), bytes);
 *   }
 *   out.commit();
 * }
 * }</pre>
 *
 * <p>The header is padded with spaces so that the data starts at a multiple of 8. Its metadata say
 * {@code "format": "pt"}, without which Hugging Face transformers refuses a file. The format: see
 * {@link SafetensorsReader}.
 */
public final class SafetensorsWriter implements AutoCloseable {
  private static final int ALIGNMENT = 8;
  private static final int PIECE = 1 << 24;

  private final AtomicFile file;
  private final List<Entry> entries;
  private int current;
  private long written; // bytes of the current tensor
  private long dataBytes;

  /**
   * A tensor to come.
   *
   * @param name under which it is stored
   * @param shape extents, outermost first; none for a scalar
   */
  public record Entry(String name, DType dtype, List<Long> shape) {
    public Entry {
      shape = List.copyOf(shape);
      if (shape.stream().anyMatch(extent -> extent < 0)) {
        throw new IllegalArgumentException("%s has the shape %s".formatted(name, shape));
      }
      if (name.equals(SafetensorsReader.METADATA)) {
        throw new IllegalArgumentException("no tensor can be named " + name);
      }
    }

    /** Size of its data in bytes. */
    public long bytes() {
      return shape.stream().reduce((long) dtype.bytes(), Math::multiplyExact);
    }
  }

  private SafetensorsWriter(AtomicFile file, List<Entry> entries) {
    this.file = file;
    this.entries = entries;
  }

  /**
   * Starts a file with these tensors, in this order.
   *
   * @throws IOException if the file can't be written, or its file system has too little room
   * @throws IllegalArgumentException if two tensors have one name
   */
  public static SafetensorsWriter create(Path target, List<Entry> entries) throws IOException {
    entries = List.copyOf(entries);
    ByteBuffer header = header(entries);
    AtomicFile file = AtomicFile.create(target);
    SafetensorsWriter writer = new SafetensorsWriter(file, entries);
    boolean started = false;
    try {
      file.requireRoom(entries.stream().mapToLong(Entry::bytes).reduce(0, Math::addExact));
      file.write(header);
      writer.skipWhole();
      started = true;
      return writer;
    } finally {
      if (!started) {
        writer.close();
      }
    }
  }

  private static ByteBuffer header(List<Entry> entries) throws IOException {
    StringWriter text = new StringWriter();
    Set<String> names = new HashSet<>();
    try (JsonWriter json = new JsonWriter(text)) {
      json.beginObject();
      json.name(SafetensorsReader.METADATA).beginObject().name("format").value("pt").endObject();
      long at = 0;
      for (Entry entry : entries) {
        if (!names.add(entry.name)) {
          throw new IllegalArgumentException("two tensors are named " + entry.name);
        }
        json.name(entry.name).beginObject();
        json.name("dtype").value(entry.dtype.name());
        json.name("shape").beginArray();
        for (long extent : entry.shape) {
          json.value(extent);
        }
        json.endArray();
        json.name("data_offsets").beginArray().value(at);
        at = Math.addExact(at, entry.bytes());
        json.value(at).endArray();
        json.endObject();
      }
      json.endObject();
    }
    byte[] utf8 = text.toString().getBytes(StandardCharsets.UTF_8);
    int padded = Math.ceilDiv(utf8.length, ALIGNMENT) * ALIGNMENT;
    ByteBuffer header =
        ByteBuffer.allocate(SafetensorsReader.LENGTH_BYTES + padded)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putLong(padded)
            .put(utf8);
    while (header.hasRemaining()) {
      header.put((byte) ' ');
    }
    return header.flip();
  }

  /**
   * Writes the next bytes of a tensor.
   *
   * @param name the tensor whose turn it is
   * @param data little-endian elements, native memory or a byte array
   * @throws IllegalStateException if it is another tensor's turn, or these are more bytes than the
   *     tensor has left
   */
  public void write(String name, MemorySegment data) throws IOException {
    if (data.byteSize() == 0) {
      return;
    }
    if (current == entries.size() || !entries.get(current).name.equals(name)) {
      throw new IllegalStateException(
          "%s is written out of turn, %s is next"
              .formatted(name, current == entries.size() ? "nothing" : entries.get(current).name));
    }
    long left = entries.get(current).bytes() - written;
    if (data.byteSize() > left) {
      throw new IllegalStateException(
          "%s has %d bytes left, given %d".formatted(name, left, data.byteSize()));
    }
    for (long at = 0; at < data.byteSize(); at += PIECE) {
      file.write(data.asSlice(at, Math.min(PIECE, data.byteSize() - at)).asByteBuffer());
    }
    written += data.byteSize();
    dataBytes += data.byteSize();
    skipWhole();
  }

  private void skipWhole() {
    while (current < entries.size() && written == entries.get(current).bytes()) {
      current++;
      written = 0;
    }
  }

  /** Bytes of data so far, of all tensors. */
  public long dataBytes() {
    return dataBytes;
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

  /** Ends the writing; without {@link #commit} no file is left. */
  @Override
  public void close() throws IOException {
    file.close();
  }
}
