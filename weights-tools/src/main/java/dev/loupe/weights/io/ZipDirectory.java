package dev.loupe.weights.io;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The files in a zip file that are stored uncompressed, as views of it; ZIP64 included.
 *
 * <pre>
 * | local header, name, extra, data | ... | central directory | end (ZIP64) | end |
 *   P K 3 4                                P K 1 2 ...         P K 6 6       P K 5 6
 * </pre>
 *
 * <p>What is where, the central directory says; of a local header only its length is used. Check
 * sums are not looked at: torch can be told to write wrong ones.
 *
 * <p>Source: PKWARE's APPNOTE.TXT 6.3.10, section 4.3.
 */
public final class ZipDirectory {
  private static final byte[] LOCAL = {'P', 'K', 3, 4};
  private static final int CENTRAL_ENTRY = 0x02014b50;
  private static final int LOCAL_HEADER = 0x04034b50;
  private static final int END = 0x06054b50;
  private static final int END_64 = 0x06064b50;
  private static final int END_64_LOCATOR = 0x07064b50;

  private static final int END_BYTES = 22;
  private static final int LOCATOR_BYTES = 20;
  private static final long IN_ZIP64 = 0xFFFFFFFFL; // stands for a number that is in an extra field
  private static final int ZIP64_FIELD = 1;
  private static final int MAX_ENTRIES = 50_000;
  private static final int MAX_NAME = 1000;

  private final InputFile file;
  private final Map<String, Member> members = new LinkedHashMap<>();

  /** Whether a file begins as zip archives do. */
  public static boolean isZip(InputFile file) {
    return file.startsWith(LOCAL);
  }

  /**
   * A file in the zip file.
   *
   * @param packed whether it is compressed or encrypted, so that its bytes aren't there as such
   * @param header where its local header is
   * @param size in bytes
   */
  private record Member(boolean packed, long header, long size) {}

  private ZipDirectory(InputFile file) {
    this.file = file;
  }

  /**
   * Reads the directory.
   *
   * @throws CheckpointException if the file is damaged
   */
  public static ZipDirectory of(InputFile file) throws CheckpointException {
    ZipDirectory zip = new ZipDirectory(file);
    zip.readCentral(zip.end());
    return zip;
  }

  /** The names, with folders, in the order of the directory. */
  public Set<String> names() {
    return members.keySet();
  }

  /** What the central directory's place is told by. */
  private record Central(long at, int entries) {}

  private Central end() throws CheckpointException {
    long size = file.bytes().byteSize();
    long lowest = Math.max(0, size - END_BYTES - 0xFFFF); // a comment may follow
    for (long at = size - END_BYTES; at >= lowest; at--) {
      if (signature(at) == END && comment(at) == size - at - END_BYTES) {
        long locator = at - LOCATOR_BYTES;
        if (locator >= 0 && signature(locator) == END_64_LOCATOR) {
          return end64(from(locator + 8, "the ZIP64 end").u64());
        }
        ByteReader in = from(at + 10, "the end of the zip file");
        int entries = Short.toUnsignedInt(in.u16());
        in.skip(4); // the directory's size
        return new Central(Integer.toUnsignedLong(in.u32()), entries);
      }
    }
    throw new CheckpointException(
        "%s is cut short: the directory at the end of a zip file is missing; copy or download it"
                .formatted(file.path())
            + " again");
  }

  private Central end64(long at) throws CheckpointException {
    ByteReader in = from(at, "the ZIP64 end");
    if (in.u32() != END_64) {
      throw in.damaged(at, "it is not there");
    }
    in.skip(28);
    int entries = in.count64(MAX_ENTRIES, "the number of files");
    in.skip(8); // the directory's size
    return new Central(in.u64(), entries);
  }

  private void readCentral(Central central) throws CheckpointException {
    ByteReader in = from(central.at, "the directory of the zip file");
    for (int i = 0; i < central.entries; i++) {
      long at = in.at();
      if (in.u32() != CENTRAL_ENTRY) {
        throw in.damaged(at, "entry %d is not there".formatted(i));
      }
      in.skip(4); // versions
      boolean packed = (in.u16() & 1) != 0; // encrypted
      packed |= in.u16() != 0; // compressed
      in.skip(8); // time and check sum
      long packedSize = Integer.toUnsignedLong(in.u32());
      long size = Integer.toUnsignedLong(in.u32());
      int nameBytes = Short.toUnsignedInt(in.u16());
      int extraBytes = Short.toUnsignedInt(in.u16());
      int commentBytes = Short.toUnsignedInt(in.u16());
      in.skip(8); // attributes
      long header = Integer.toUnsignedLong(in.u32());
      if (nameBytes > MAX_NAME) {
        throw in.damaged(at, "a name of %d bytes".formatted(nameBytes));
      }
      String name = text(in.skip(nameBytes), nameBytes);
      long extra = in.skip(extraBytes);
      in.skip(commentBytes);
      // those that need it have 64 bits there, in this order
      ByteReader wide = zip64(extra, extra + extraBytes);
      size = size == IN_ZIP64 ? wide.u64() : size;
      if (packedSize == IN_ZIP64) {
        wide.skip(Long.BYTES);
      }
      header = header == IN_ZIP64 ? wide.u64() : header;
      if (members.put(name, new Member(packed, header, size)) != null) {
        throw in.damaged(at, "%s is there twice".formatted(StrictJson.shown(name)));
      }
    }
  }

  /** The extra field for numbers of 64 bits; nothing if there is none. */
  private ByteReader zip64(long begin, long end) throws CheckpointException {
    ByteReader in = new ByteReader(file, "an entry of the zip file", begin, end);
    while (end - in.at() >= 4) {
      int id = Short.toUnsignedInt(in.u16());
      int bytes = Short.toUnsignedInt(in.u16());
      if (id == ZIP64_FIELD) {
        return new ByteReader(file, "a ZIP64 field", in.at(), Math.min(in.at() + bytes, end));
      }
      in.skip(bytes);
    }
    return new ByteReader(file, "a ZIP64 field", end, end);
  }

  /**
   * What a file in the zip file holds.
   *
   * @return a view; null if there is no such file
   * @throws CheckpointException if it is compressed, or not inside the zip file
   */
  public @Nullable MemorySegment find(String name) throws CheckpointException {
    Member member = members.get(name);
    if (member == null) {
      return null;
    }
    if (member.packed) {
      throw new CheckpointException(
          "%s: %s in it is compressed or encrypted, which torch.save never does; pack it anew with"
                  .formatted(file.path(), StrictJson.shown(name))
              + " zip -0");
    }
    ByteReader in = from(member.header, StrictJson.shown(name));
    if (in.u32() != LOCAL_HEADER) {
      throw in.damaged(member.header, "its header is not there");
    }
    in.skip(22); // what the directory says as well
    int nameBytes = Short.toUnsignedInt(in.u16());
    in.skip(nameBytes + (long) Short.toUnsignedInt(in.u16()));
    return file.bytes().asSlice(in.skip(member.size), member.size);
  }

  /** Reads from a place that the file names, to its end. */
  private ByteReader from(long at, String what) throws CheckpointException {
    long size = file.bytes().byteSize();
    if (at < 0 || at > size) {
      throw new CheckpointException(
          "%s is damaged: %s would be at byte %s of %d"
              .formatted(file.path(), what, Long.toUnsignedString(at), size));
    }
    return new ByteReader(file, what, at, size);
  }

  private int signature(long at) {
    return file.bytes().get(ByteReader.U32, at);
  }

  /** How long the comment is, after the end that is at this place. */
  private int comment(long at) throws CheckpointException {
    return Short.toUnsignedInt(from(at + END_BYTES - 2, "the end of the zip file").u16());
  }

  private String text(long at, int count) {
    return new String(
        file.bytes().asSlice(at, count).toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
  }
}
