package dev.loupe.export;

import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SeekableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.LocalDateTime;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;
import org.apache.commons.compress.archivers.zip.Zip64Mode;
import org.apache.commons.compress.archivers.zip.ZipArchiveEntry;
import org.apache.commons.compress.archivers.zip.ZipArchiveOutputStream;

/**
 * Writes numpy's NPZ: a zip of one NPY array per name, stored without compression, little-endian, C
 * order. Arrays start at multiples of 64 bytes in the file, so that a reader may map them. Entries
 * carry a fixed time: the same arrays give the same bytes.
 *
 * <p>Source: numpy.lib.format (NPY 1.0) and PKWARE's APPNOTE 6.3.10 (ZIP64).
 */
final class NpzWriter implements Closeable {
  private static final int ALIGNMENT = 64;
  private static final LocalDateTime ZIP_EPOCH = LocalDateTime.of(1980, 1, 1, 12, 0);

  /** Element types, by numpy's name. */
  enum Type {
    F2(2),
    F4(4),
    I4(4),
    I8(8);

    private final int bytes;

    Type(int bytes) {
      this.bytes = bytes;
    }
  }

  /** Writes the elements of one array, all of them and in order. */
  @FunctionalInterface
  interface Elements {
    void write(Sink out) throws IOException;
  }

  private final ZipArchiveOutputStream zip;

  NpzWriter(Path file) throws IOException {
    SeekableByteChannel channel =
        Files.newByteChannel(
            file,
            StandardOpenOption.CREATE,
            StandardOpenOption.WRITE,
            StandardOpenOption.TRUNCATE_EXISTING);
    zip = new ZipArchiveOutputStream(channel);
    zip.setUseZip64(Zip64Mode.AsNeeded);
  }

  /** Adds an array of numbers. */
  void array(String name, Type type, long[] shape, Elements elements) throws IOException {
    array(name, "<" + type.name().toLowerCase(Locale.ROOT), type.bytes, shape, elements);
  }

  /** Adds a one-dimensional array of strings: numpy's U, UCS-4 padded with zeros. */
  void strings(String name, String[] values) throws IOException {
    int width = 1;
    for (String value : values) {
      width = Math.max(width, value.codePointCount(0, value.length()));
    }
    int padded = width;
    array(
        name,
        "<U" + width,
        4 * width,
        new long[] {values.length},
        out -> {
          for (String value : values) {
            int[] codePoints = Arrays.copyOf(value.codePoints().toArray(), padded);
            for (int codePoint : codePoints) {
              out.putInt(codePoint);
            }
          }
        });
  }

  private void array(String name, String descr, int bytes, long[] shape, Elements elements)
      throws IOException {
    byte[] header = header(descr, shape);
    long size = Arrays.stream(shape).reduce(bytes, Math::multiplyExact);
    ZipArchiveEntry entry = new ZipArchiveEntry(name + ".npy");
    entry.setMethod(ZipArchiveEntry.STORED);
    entry.setSize(header.length + size);
    entry.setAlignment(ALIGNMENT);
    entry.setTimeLocal(ZIP_EPOCH);
    zip.putArchiveEntry(entry);
    zip.write(header);
    Sink sink = new Sink(zip);
    elements.write(sink);
    sink.flush();
    if (sink.written != size) {
      throw new IllegalStateException(
          "%s of shape %s takes %d bytes, but %d were written"
              .formatted(name, Arrays.toString(shape), size, sink.written));
    }
    zip.closeArchiveEntry();
  }

  /** NPY 1.0: magic, version, length, and a Python dict padded with spaces. */
  private static byte[] header(String descr, long[] shape) {
    String tuple =
        Arrays.stream(shape).mapToObj(Long::toString).collect(Collectors.joining(", "))
            + (shape.length == 1 ? "," : "");
    String dict =
        "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }".formatted(descr, tuple);
    int fixed = 10; // magic 6, version 2, length 2
    int length = (fixed + dict.length() + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - fixed;
    return ByteBuffer.allocate(fixed + length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .put((byte) 0x93)
        .put("NUMPY".getBytes(StandardCharsets.US_ASCII))
        .put((byte) 1)
        .put((byte) 0)
        .putShort((short) length)
        .put(
            (dict + " ".repeat(length - dict.length() - 1) + "\n")
                .getBytes(StandardCharsets.US_ASCII))
        .array();
  }

  /** Ends the archive. What is written after a failure is not a whole archive. */
  @Override
  public void close() throws IOException {
    zip.close();
  }

  /** Numbers on their way into an array, little-endian, a chunk at a time. */
  static final class Sink {
    private final OutputStream out;
    private final ByteBuffer chunk = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);
    private long written;

    private Sink(OutputStream out) {
      this.out = out;
    }

    void putFloats(float[] values) throws IOException {
      for (int done = 0; done < values.length; ) {
        room(4);
        int count = Math.min(values.length - done, chunk.remaining() / 4);
        chunk.asFloatBuffer().put(values, done, count);
        chunk.position(chunk.position() + 4 * count);
        done += count;
      }
    }

    void putHalves(float[] values) throws IOException {
      for (float value : values) {
        room(2);
        chunk.putShort(Float.floatToFloat16(value));
      }
    }

    void putInt(int value) throws IOException {
      room(4);
      chunk.putInt(value);
    }

    void putLong(long value) throws IOException {
      room(8);
      chunk.putLong(value);
    }

    private void room(int bytes) throws IOException {
      if (chunk.remaining() < bytes) {
        flush();
      }
    }

    private void flush() throws IOException {
      out.write(chunk.array(), 0, chunk.position());
      written += chunk.position();
      chunk.clear();
    }
  }
}
