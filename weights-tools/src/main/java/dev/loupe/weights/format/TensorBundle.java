package dev.loupe.weights.format;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.Protobuf;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StridedData;
import dev.loupe.weights.tensor.TensorData;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What the index of a TensorFlow checkpoint says, as protobuf messages.
 *
 * <p>Sources: tensor_bundle.proto, tensor_shape.proto and types.proto of tensorflow/tensorflow.
 */
final class TensorBundle {
  private static final int MAX_SHARDS = 1000;
  private static final int MAX_RANK = 16;

  /** Tensors up to here are compared with their checksums at once: the wrong data file shows. */
  private static final long CHECKED_BYTES = 1 << 16;

  private TensorBundle() {}

  /**
   * BundleHeaderProto.
   *
   * @param shards number of data files
   * @param order of the bytes of an element
   */
  record Header(int shards, ByteOrder order) {
    static Header read(InputFile index, SortedTable.Row row) throws CheckpointException {
      long shards = 0;
      ByteOrder order = ByteOrder.LITTLE_ENDIAN;
      Protobuf header = new Protobuf(index, "the header", row.begin(), row.end());
      for (int field = header.next(); field != 0; field = header.next()) {
        switch (field) {
          case 1 -> shards = header.number();
          case 2 -> order = header.number() == 0 ? order : ByteOrder.BIG_ENDIAN;
          default -> {} // the version of the program that wrote it
        }
      }
      if (shards < 1 || shards > MAX_SHARDS) {
        throw new CheckpointException(
            "%s: its header at byte %d says that there are %d data files"
                .formatted(index.path(), row.begin(), shards));
      }
      return new Header((int) shards, order);
    }

    /** The data file of that number; it lies beside the index. */
    Path dataFile(Path index, int shard) {
      String name = String.valueOf(index.getFileName());
      String prefix =
          name.endsWith(TensorFlowReader.INDEX)
              ? name.substring(0, name.length() - TensorFlowReader.INDEX.length())
              : name;
      return index.resolveSibling("%s.data-%05d-of-%05d".formatted(prefix, shard, shards));
    }
  }

  /**
   * BundleEntryProto: a tensor, and the bytes of a data file that hold it.
   *
   * @param name TensorFlow's
   * @param dtype of a {@link DType} its name, else a description
   */
  record Tensor(
      String name, String dtype, List<Long> shape, int shard, long offset, long size, int crc) {
    static Tensor read(InputFile index, SortedTable.Row row) throws CheckpointException {
      long dtype = 0;
      List<Long> shape = List.of();
      long shard = 0;
      long offset = 0;
      long size = 0;
      int crc = 0;
      String shown = StrictJson.shown(row.key());
      Protobuf entry = new Protobuf(index, shown, row.begin(), row.end());
      for (int field = entry.next(); field != 0; field = entry.next()) {
        switch (field) {
          case 1 -> dtype = entry.number();
          case 2 -> shape = shape(entry.message(), index, shown);
          case 3 -> shard = entry.number();
          case 4 -> offset = entry.number();
          case 5 -> size = entry.number();
          case 6 -> crc = entry.fixed32();
          case 7 ->
              throw new CheckpointException(
                  "%s: %s is stored in slices, as OpenAI's checkpoints are not"
                      .formatted(index.path(), shown));
          default -> {} // of a later version
        }
      }
      if ((int) shard != shard || offset < 0 || size < 0) {
        throw new CheckpointException(
            "%s: %s would be %d bytes from byte %d of data file %d"
                .formatted(index.path(), shown, size, offset, shard));
      }
      return new Tensor(row.key(), name(dtype), shape, (int) shard, offset, size, crc);
    }

    private static List<Long> shape(Protobuf message, InputFile index, String shown)
        throws CheckpointException {
      List<Long> shape = new ArrayList<>();
      for (int field = message.next(); field != 0; field = message.next()) {
        if (field != 2) {
          continue;
        }
        long extent = 0;
        Protobuf dim = message.message();
        for (int inner = dim.next(); inner != 0; inner = dim.next()) {
          extent = inner == 1 ? dim.number() : extent;
        }
        shape.add(extent);
        if (extent < 0 || shape.size() > MAX_RANK) {
          throw new CheckpointException(
              "%s: %s has the shape %s".formatted(index.path(), shown, shape));
        }
      }
      return shape;
    }

    private static String name(long dtype) {
      return switch ((int) dtype) {
        case 1 -> "F32";
        case 2 -> "F64";
        case 14 -> "BF16";
        case 19 -> "F16";
        default -> "TensorFlow's type " + dtype;
      };
    }

    /**
     * The tensor under Hugging Face's name.
     *
     * @throws CheckpointException if the data file doesn't hold it
     */
    CheckpointReader.Entry entry(InputFile data, ByteOrder order, String hfName)
        throws CheckpointException {
      String shown = StrictJson.shown(name);
      long fileBytes = data.bytes().byteSize();
      if (offset > fileBytes || size > fileBytes - offset) {
        throw new CheckpointException(
            "%s is cut short: %s ends at byte %s of %d; copy or download it again"
                .formatted(data.path(), shown, Long.toUnsignedString(offset + size), fileBytes));
      }
      if (size <= CHECKED_BYTES && SortedTable.checksum(data, offset, offset + size) != crc) {
        throw new CheckpointException(
            "%s: %s at byte %d fails its checksum: it is damaged, or belongs to another index"
                .formatted(data.path(), shown, offset));
      }
      // [1, in, out] is [in, out]: the 1 is the width of a convolution
      List<Long> layout =
          shape.size() == 3 && shape.getFirst() == 1 ? List.copyOf(shape.subList(1, 3)) : shape;
      @Nullable DType readable = DType.named(dtype);
      TensorData view =
          readable == null
              ? null
              : view(readable, data, order, "%s: %s".formatted(data.path(), shown));
      return new CheckpointReader.Entry(hfName, dtype, layout, view, data.path());
    }

    private TensorData view(DType type, InputFile data, ByteOrder order, String what)
        throws CheckpointException {
      List<Long> strides = new ArrayList<>();
      long elements = 1;
      try {
        for (long extent : shape.reversed()) {
          strides.addFirst(elements);
          elements = Math.multiplyExact(elements, extent);
        }
        if (Math.multiplyExact(elements, type.bytes()) == size) {
          MemorySegment stored = data.bytes().asSlice(offset, size);
          return StridedData.of(type, order, stored, 0, shape, strides);
        }
      } catch (ArithmeticException e) {
        // more than any file holds
      }
      throw new CheckpointException(
          "%s is %s %s, which its %d bytes are not".formatted(what, type, shape, size));
    }
  }
}
