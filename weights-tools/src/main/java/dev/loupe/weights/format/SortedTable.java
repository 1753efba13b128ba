package dev.loupe.weights.format;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;

/**
 * A table of keys and values in the order of the keys, as LevelDB writes it and TensorFlow indexes
 * its checkpoints.
 *
 * <pre>
 * data blocks, meta block, index block     the index block's values are handles of data blocks
 * footer, 48 B: handle of the meta block, handle of the index block, zeros, magic (u64)
 *
 * handle: offset, size                     both varints; the trailer is not counted
 * block:  entries, restarts (u32 each), number of restarts (u32)
 *         trailer, 5 B: compression (u8; 0 is none), checksum of entries to compression (u32)
 * entry:  bytes shared with the key before it, further bytes, bytes of the value (varints);
 *         further bytes of the key; value
 * </pre>
 *
 * <p>Sources: doc/table_format.md of google/leveldb; the magic number is that of TensorFlow's
 * tsl/lib/io/format.h.
 */
final class SortedTable {
  private static final ValueLayout.OfLong U64 =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final long MAGIC = 0xDB4775248B80FB57L;
  private static final int FOOTER_BYTES = 48;
  private static final int TRAILER_BYTES = 5;
  private static final int MAX_BYTES = 64 << 20;
  private static final int MAX_ROWS = 20_000;
  private static final int MAX_KEY = 512;
  private static final int MASK_DELTA = 0xA282EAD8;

  /**
   * A row of the table.
   *
   * @param begin of the value in the file
   * @param end of the value in the file
   */
  record Row(String key, long begin, long end) {}

  private final InputFile file;
  private final List<Row> rows = new ArrayList<>();

  private SortedTable(InputFile file) {
    this.file = file;
  }

  static boolean recognises(InputFile file) {
    long size = file.bytes().byteSize();
    return size >= FOOTER_BYTES && file.bytes().get(U64, size - Long.BYTES) == MAGIC;
  }

  /**
   * All rows, in the order of their keys.
   *
   * @param file one that {@link #recognises}
   * @throws CheckpointException if the table is damaged or compressed
   */
  static List<Row> read(InputFile file) throws CheckpointException {
    long size = file.bytes().byteSize();
    if (size > MAX_BYTES) {
      throw new CheckpointException(
          "%s has %d bytes, too many for an index of tensors".formatted(file.path(), size));
    }
    ByteReader footer = new ByteReader(file, "the footer", size - FOOTER_BYTES, size - Long.BYTES);
    footer.varint();
    footer.varint(); // so much for the meta block
    SortedTable index = new SortedTable(file);
    index.readBlock(footer, 0);
    SortedTable table = new SortedTable(file);
    long readTo = 0; // data blocks follow one another, so that no byte is read twice
    for (Row block : index.rows) {
      ByteReader handle = new ByteReader(file, "a handle", block.begin, block.end);
      readTo = table.readBlock(handle, readTo);
    }
    return table.rows;
  }

  /**
   * Adds the rows of the block whose handle comes next.
   *
   * @param first where the block may begin
   * @return the end of the block
   */
  private long readBlock(ByteReader handle, long first) throws CheckpointException {
    long where = handle.at();
    long offset = handle.varint();
    long size = handle.varint();
    long limit = file.bytes().byteSize() - FOOTER_BYTES - TRAILER_BYTES;
    if (offset < first || size < Integer.BYTES || offset > limit || size > limit - offset) {
      throw handle.damaged(
          where,
          "no block can have %s bytes from byte %s on"
              .formatted(Long.toUnsignedString(size), Long.toUnsignedString(offset)));
    }
    long end = offset + size;
    checkTrailer(offset, end);
    ByteReader last = new ByteReader(file, "a block", end - Integer.BYTES, end);
    long restarts = last.u32() & 0xFFFFFFFFL;
    long restartBytes = Integer.BYTES * (restarts + 1);
    if (restartBytes > size) {
      throw last.damaged(
          end - Integer.BYTES, "%d bytes hold no %d restarts".formatted(size, restarts));
    }
    readEntries(new ByteReader(file, "a block", offset, end - restartBytes));
    return end + TRAILER_BYTES;
  }

  private void checkTrailer(long offset, long end) throws CheckpointException {
    ByteReader trailer = new ByteReader(file, "a block", end, end + TRAILER_BYTES);
    int compression = trailer.u8();
    if (compression != 0) {
      throw new CheckpointException(
          "%s: the block at byte %d is compressed (type %d), as no checkpoint's index is"
              .formatted(file.path(), offset, compression));
    }
    if (trailer.u32() != checksum(file, offset, end + 1)) {
      throw trailer.damaged(offset, "it fails its checksum; copy or download it again");
    }
  }

  private void readEntries(ByteReader in) throws CheckpointException {
    byte[] key = new byte[MAX_KEY];
    int length = 0;
    while (!in.atEnd()) {
      long where = in.at();
      long shared = in.varint();
      long further = in.varint();
      long valueBytes = in.varint();
      if (shared < 0 || shared > length || further < 0 || further > MAX_KEY - shared) {
        throw in.damaged(
            where,
            "no key of up to %d bytes adds %s to %s of a key of %d bytes"
                .formatted(
                    MAX_KEY,
                    Long.toUnsignedString(further),
                    Long.toUnsignedString(shared),
                    length));
      }
      long from = in.skip(further);
      length = (int) (shared + further);
      for (int i = (int) shared; i < length; i++) {
        key[i] = file.byteAt(from + i - shared);
      }
      add(new String(key, 0, length, ISO_8859_1), in.skip(valueBytes), in);
    }
  }

  private void add(String key, long begin, ByteReader in) throws CheckpointException {
    if (rows.size() == MAX_ROWS) {
      throw new CheckpointException(
          "%s lists more than %d tensors, too many for a GPT-2".formatted(file.path(), MAX_ROWS));
    }
    if (!rows.isEmpty() && rows.getLast().key.compareTo(key) >= 0) {
      throw in.damaged(
          begin,
          "%s stands after %s, which is not the order of a table"
              .formatted(StrictJson.shown(key), StrictJson.shown(rows.getLast().key)));
    }
    rows.add(new Row(key, begin, in.at()));
  }

  /**
   * The checksum that LevelDB and TensorFlow store: CRC-32C, turned and moved so that data with
   * checksums in it can be summed again.
   */
  static int checksum(InputFile file, long begin, long end) {
    CRC32C crc = new CRC32C();
    // through the heap: a file that is cut meanwhile is an error there, and a crash in native code
    byte[] chunk = new byte[(int) Math.min(end - begin, 1 << 16)];
    for (long at = begin; at < end; at += chunk.length) {
      int n = (int) Math.min(chunk.length, end - at);
      MemorySegment.copy(file.bytes(), ValueLayout.JAVA_BYTE, at, chunk, 0, n);
      crc.update(chunk, 0, n);
    }
    return Integer.rotateRight((int) crc.getValue(), 15) + MASK_DELTA;
  }
}
