package dev.loupe.weights;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
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
final class ZipDirectory {
  static final byte[] LOCAL = {'P', 'K', 3, 4};
  private static final long CENTRAL_ENTRY = 0x02014b50;
  private static final long LOCAL_HEADER = 0x04034b50;
  private static final long END = 0x06054b50;
  private static final long END_64 = 0x06064b50;
  private static final long END_64_LOCATOR = 0x07064b50;

  private static final int END_BYTES = 22;
  private static final int END_64_BYTES = 56;
  private static final int LOCATOR_BYTES = 20;
  private static final int CENTRAL_BYTES = 46;
  private static final int LOCAL_BYTES = 30;
  private static final long IN_ZIP64 = 0xFFFFFFFFL; // stands for a number that is in an extra field
  private static final int MAX_ENTRIES = 50_000;
  private static final int MAX_NAME = 1000;

  private static final ValueLayout.OfShort U16 =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt U32 =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong U64 =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final MappedFile file;
  private final Map<String, Member> members = new LinkedHashMap<>();

  /**
   * A file in the zip file.
   *
   * @param packed whether it is compressed or encrypted, so that its bytes aren't there as such
   * @param header where its local header is
   * @param size in bytes
   */
  private record Member(boolean packed, long header, long size) {}

  private ZipDirectory(MappedFile file) {
    this.file = file;
  }

  /**
   * Reads the directory.
   *
   * @throws CheckpointException if the file is damaged
   */
  static ZipDirectory of(MappedFile file) throws CheckpointException {
    ZipDirectory zip = new ZipDirectory(file);
    zip.readCentral(zip.end());
    return zip;
  }

  /** The names, with folders, in the order of the directory. */
  Set<String> names() {
    return members.keySet();
  }

  /** What the central directory's place is told by. */
  private record Central(long at, long entries) {}

  private Central end() throws CheckpointException {
    long size = file.bytes().byteSize();
    long lowest = Math.max(0, size - END_BYTES - 0xFFFF); // a comment may follow
    for (long at = size - END_BYTES; at >= lowest; at--) {
      if (u32(at) == END && at + END_BYTES + u16(at + 20) == size) {
        boolean is64 = at >= LOCATOR_BYTES && u32(at - LOCATOR_BYTES) == END_64_LOCATOR;
        return is64
            ? end64(file.bytes().get(U64, at - LOCATOR_BYTES + 8))
            : new Central(u32(at + 16), u16(at + 10));
      }
    }
    throw new CheckpointException(
        "%s is cut short: the directory at the end of a zip file is missing; copy or download it"
                .formatted(file.path())
            + " again");
  }

  private Central end64(long at) throws CheckpointException {
    check(at, END_64_BYTES, "the ZIP64 end of its directory");
    if (u32(at) != END_64) {
      throw damaged(at, "the ZIP64 end of its directory is not there");
    }
    return new Central(file.bytes().get(U64, at + 48), file.bytes().get(U64, at + 32));
  }

  private void readCentral(Central central) throws CheckpointException {
    if (central.entries < 0 || central.entries > MAX_ENTRIES) {
      throw new CheckpointException(
          "%s is a zip file of %s files, too many for a GPT-2"
              .formatted(file.path(), Long.toUnsignedString(central.entries)));
    }
    long at = central.at;
    for (long i = 0; i < central.entries; i++) {
      check(at, CENTRAL_BYTES, "entry %d of its directory".formatted(i));
      if (u32(at) != CENTRAL_ENTRY) {
        throw damaged(at, "entry %d of its directory is not there".formatted(i));
      }
      long nameBytes = u16(at + 28);
      long extraBytes = u16(at + 30);
      long length = CENTRAL_BYTES + nameBytes + extraBytes + u16(at + 32);
      check(at, length, "entry %d of its directory".formatted(i));
      if (nameBytes > MAX_NAME) {
        throw damaged(at, "a name of %d bytes".formatted(nameBytes));
      }
      String name =
          new String(
              file.bytes().asSlice(at + CENTRAL_BYTES, nameBytes).toArray(ValueLayout.JAVA_BYTE),
              StandardCharsets.UTF_8);
      if (members.put(name, member(at, at + CENTRAL_BYTES + nameBytes, extraBytes)) != null) {
        throw damaged(at, "%s is there twice".formatted(StrictJson.shown(name)));
      }
      at += length;
    }
  }

  private Member member(long at, long extra, long extraBytes) throws CheckpointException {
    boolean encrypted = (u16(at + 8) & 1) != 0;
    boolean compressed = u16(at + 10) != 0;
    MemorySegment wide = wideFields(extra, extra + extraBytes);
    int used = 0;
    long size = u32(at + 24);
    if (size == IN_ZIP64) {
      size = wideField(wide, used++, at);
    }
    if (u32(at + 20) == IN_ZIP64) {
      used++; // the compressed size
    }
    long header = u32(at + 42);
    if (header == IN_ZIP64) {
      header = wideField(wide, used, at);
    }
    return new Member(encrypted || compressed, header, size);
  }

  /** The extra field with the numbers that need 64 bits; empty if there is none. */
  private MemorySegment wideFields(long from, long to) {
    for (long at = from; at + 4 <= to; at += 4 + u16(at + 2)) {
      if (u16(at) == 1) {
        return file.bytes().asSlice(at + 4, Math.min(u16(at + 2), to - at - 4));
      }
    }
    return file.bytes().asSlice(from, 0);
  }

  private long wideField(MemorySegment wide, int index, long at) throws CheckpointException {
    if (wide.byteSize() < 8L * (index + 1)) {
      throw damaged(at, "an entry of its directory lacks a ZIP64 number");
    }
    return wide.get(U64, 8L * index);
  }

  /**
   * What a file in the zip file holds.
   *
   * @return a view; null if there is no such file
   * @throws CheckpointException if it is compressed, or not inside the zip file
   */
  @Nullable MemorySegment find(String name) throws CheckpointException {
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
    check(member.header, LOCAL_BYTES, "the header of " + StrictJson.shown(name));
    if (u32(member.header) != LOCAL_HEADER) {
      throw damaged(
          member.header, "the header of %s is not there".formatted(StrictJson.shown(name)));
    }
    long at = member.header + LOCAL_BYTES + u16(member.header + 26) + u16(member.header + 28);
    check(at, member.size, StrictJson.shown(name));
    return file.bytes().asSlice(at, member.size);
  }

  private void check(long at, long length, String what) throws CheckpointException {
    long size = file.bytes().byteSize();
    if (at < 0 || at > size || length < 0 || length > size - at) {
      throw new CheckpointException(
          "%s is damaged: %s would take %s bytes at byte %s, of %d"
              .formatted(
                  file.path(),
                  what,
                  Long.toUnsignedString(length),
                  Long.toUnsignedString(at),
                  size));
    }
  }

  private CheckpointException damaged(long at, String fault) {
    return new CheckpointException(
        "%s is damaged: at byte %d %s".formatted(file.path(), at, fault));
  }

  private int u16(long at) {
    return Short.toUnsignedInt(file.bytes().get(U16, at));
  }

  private long u32(long at) {
    return Integer.toUnsignedLong(file.bytes().get(U32, at));
  }
}
