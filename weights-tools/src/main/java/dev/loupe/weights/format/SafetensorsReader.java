package dev.loupe.weights.format;

import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import dev.loupe.weights.config.HfConfig;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The safetensors format, with a config.json beside the file.
 *
 * <pre>
 * 0      8            8 + n                    end
 * | n    | header     | data                   |
 * | u64  | JSON, n B  | row-major, no gaps     |
 * {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
 *  "__metadata__": {"format": "pt"}}            offsets count from the start of the data
 * </pre>
 *
 * <p>Source: the format section of the README of huggingface/safetensors, and the checks that its
 * {@code tensor.rs} makes.
 */
public final class SafetensorsReader implements CheckpointReader {
  public static final String FILE_NAME = "model.safetensors";
  static final String METADATA = "__metadata__";
  static final int LENGTH_BYTES = 8;
  static final long MAX_HEADER = 100_000_000;
  private static final int MAX_TENSORS = 100_000;
  private static final int MAX_RANK = 16;
  private static final ValueLayout.OfLong U64 =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  @Override
  public List<String> fileNames() {
    return List.of(FILE_NAME, "*.safetensors"); // model.fp16.safetensors, for one
  }

  @Override
  public boolean recognises(InputFile file) {
    if (file.bytes().byteSize() <= LENGTH_BYTES) {
      return false;
    }
    long header = file.bytes().get(U64, 0);
    return header > 0 && header <= MAX_HEADER && file.byteAt(LENGTH_BYTES) == '{';
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    List<Entry> tensors = entries(file);
    return new Contents(HfConfig.beside(file.path()), tensors, List.of(file));
  }

  /**
   * The tensors of one file, in the order of its header.
   *
   * @throws CheckpointException if the file breaks the format's rules anywhere
   */
  public static List<Entry> entries(InputFile file) throws CheckpointException {
    long size = file.bytes().byteSize();
    if (size < LENGTH_BYTES) {
      throw new CheckpointException(
          "%s has %d bytes, too few for a safetensors file".formatted(file.path(), size));
    }
    long header = file.bytes().get(U64, 0);
    if (header < 0 || header > MAX_HEADER) {
      throw new CheckpointException(
          "%s announces a header of %s bytes, more than the %d of any safetensors file: it is"
                  .formatted(file.path(), Long.toUnsignedString(header), MAX_HEADER)
              + " damaged or in another format");
    }
    if (header > size - LENGTH_BYTES) {
      throw new CheckpointException(
          "%s announces a header of %d bytes but has %d bytes in all; copy or download it again"
              .formatted(file.path(), header, size));
    }
    if (header == 0 || file.byteAt(LENGTH_BYTES) != '{') {
      throw new CheckpointException(
          file.path() + " has no safetensors header: it doesn't start with '{'");
    }
    MemorySegment data = file.bytes().asSlice(LENGTH_BYTES + header);
    List<Row> rows =
        StrictJson.parse(
            "the header of " + file.path(),
            file.bytes().asSlice(LENGTH_BYTES, header),
            in -> rows(in, file.path()));
    checkCover(rows, data.byteSize(), file.path());
    List<Entry> entries = new ArrayList<>(rows.size());
    for (Row row : rows) {
      checkSize(row, file.path());
      entries.add(
          Entry.dense(
              row.name,
              row.dtype,
              row.shape,
              data.asSlice(row.begin, row.end - row.begin),
              file.path()));
    }
    return entries;
  }

  /** One line of the header. */
  private record Row(String name, String dtype, List<Long> shape, long begin, long end) {
    String shown() {
      return StrictJson.shown(name);
    }
  }

  private static List<Row> rows(JsonReader in, Path file) throws IOException {
    List<Row> rows = new ArrayList<>();
    Set<String> names = new HashSet<>();
    in.beginObject();
    while (in.hasNext()) {
      String name = in.nextName();
      if (!names.add(name)) {
        throw new CheckpointException("%s lists %s twice".formatted(file, StrictJson.shown(name)));
      }
      if (names.size() > MAX_TENSORS) {
        throw new CheckpointException(
            "%s lists more than %d tensors, too many for a GPT-2".formatted(file, MAX_TENSORS));
      }
      if (name.equals(METADATA)) {
        skipMetadata(in, file);
      } else {
        rows.add(row(in, name, "%s: %s".formatted(file, StrictJson.shown(name))));
      }
    }
    in.endObject();
    return rows;
  }

  private static void skipMetadata(JsonReader in, Path file) throws IOException {
    String what = "%s: %s".formatted(file, METADATA);
    StrictJson.beginObject(in, what);
    while (in.hasNext()) {
      String key = in.nextName();
      if (in.peek() != JsonToken.STRING) {
        throw new CheckpointException(
            "%s holds %s, which is not a string".formatted(what, StrictJson.shown(key)));
      }
      in.skipValue();
    }
    in.endObject();
  }

  private static Row row(JsonReader in, String name, String what) throws IOException {
    @Nullable String dtype = null;
    @Nullable List<Long> shape = null;
    @Nullable List<Long> offsets = null;
    StrictJson.beginObject(in, what);
    while (in.hasNext()) {
      String field = in.nextName();
      String fieldOf = field.length() > 20 ? what : what + "'s " + StrictJson.shown(field);
      boolean again = false;
      switch (field) {
        case "dtype" -> {
          again = dtype != null;
          dtype = StrictJson.string(in, fieldOf);
        }
        case "shape" -> {
          again = shape != null;
          shape = naturals(in, fieldOf);
        }
        case "data_offsets" -> {
          again = offsets != null;
          offsets = naturals(in, fieldOf);
        }
        default -> in.skipValue();
      }
      if (again) {
        throw new CheckpointException(fieldOf + " is given twice");
      }
    }
    in.endObject();
    if (dtype == null || shape == null || offsets == null) {
      throw new CheckpointException(what + " lacks its dtype, shape or data_offsets");
    }
    if (offsets.size() != 2) {
      throw new CheckpointException(
          "%s has %d data_offsets, not 2".formatted(what, offsets.size()));
    }
    return new Row(name, dtype, shape, offsets.getFirst(), offsets.getLast());
  }

  private static List<Long> naturals(JsonReader in, String what) throws IOException {
    List<Long> numbers = new ArrayList<>();
    StrictJson.beginArray(in, what);
    while (in.hasNext()) {
      if (numbers.size() == MAX_RANK) {
        throw new CheckpointException("%s has more than %d numbers".formatted(what, MAX_RANK));
      }
      numbers.add(StrictJson.natural(in, what));
    }
    in.endArray();
    return numbers;
  }

  /** Every byte of the data belongs to one tensor: what the format asks, so that nothing hides. */
  private static void checkCover(List<Row> rows, long dataBytes, Path file)
      throws CheckpointException {
    for (Row row : rows) {
      if (row.begin > row.end) {
        throw new CheckpointException(
            "%s: %s has reversed data_offsets [%d, %d]"
                .formatted(file, row.shown(), row.begin, row.end));
      }
      if (row.end > dataBytes) {
        throw new CheckpointException(
            "%s is cut short: %s ends at byte %d of %d; copy or download it again"
                .formatted(file, row.shown(), row.end, dataBytes));
      }
    }
    List<Row> sorted = new ArrayList<>(rows);
    sorted.sort(Comparator.comparingLong(Row::begin).thenComparingLong(Row::end));
    long covered = 0;
    for (Row row : sorted) {
      if (row.begin < covered) {
        throw new CheckpointException(
            "%s: %s starts at byte %d, inside the tensor before it, which ends at %d"
                .formatted(file, row.shown(), row.begin, covered));
      }
      if (row.begin > covered) {
        throw new CheckpointException(
            "%s: bytes %d to %d, before %s, belong to no tensor"
                .formatted(file, covered, row.begin, row.shown()));
      }
      covered = row.end;
    }
    if (covered != dataBytes) {
      throw new CheckpointException(
          "%s: its last %d bytes belong to no tensor".formatted(file, dataBytes - covered));
    }
  }

  private static void checkSize(Row row, Path file) throws CheckpointException {
    int bits = bitsOf(row.dtype);
    if (bits == 0) {
      return; // a type from a later version of the format; an error only if the model needs it
    }
    long total = bits;
    try {
      for (long extent : row.shape) {
        total = Math.multiplyExact(total, extent);
      }
    } catch (ArithmeticException e) {
      throw new CheckpointException(
          "%s: %s has the shape %s, more than any file holds"
              .formatted(file, row.shown(), row.shape),
          e);
    }
    if (total % 8 != 0 || total / 8 != row.end - row.begin) {
      throw new CheckpointException(
          "%s: %s is %s %s, which takes %d bytes, but has %d"
              .formatted(file, row.shown(), row.dtype, row.shape, total / 8, row.end - row.begin));
    }
  }

  private static int bitsOf(String dtype) {
    return switch (dtype) {
      case "F64", "I64", "U64", "C64" -> 64;
      case "F32", "I32", "U32" -> 32;
      case "F16", "BF16", "I16", "U16" -> 16;
      case "BOOL", "I8", "U8" -> 8;
      default -> 0;
    };
  }
}
