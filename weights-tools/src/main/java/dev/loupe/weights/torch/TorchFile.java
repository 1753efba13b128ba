package dev.loupe.weights.torch;

import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.io.ZipDirectory;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StridedData;
import dev.loupe.weights.tensor.TensorData;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * What {@code torch.save} wrote, in either of its containers:
 *
 * <pre>
 * since torch 1.6, a zip file:                   before:
 *   NAME/data.pkl     the object                   pickles: magic number, version, sizes of types,
 *   NAME/byteorder    little or big, or missing      the object, list of keys of storages
 *   NAME/data/KEY     a storage                    a storage for each key: count (i64), elements
 * </pre>
 *
 * <p>Old files are little-endian always. Source: {@code torch/serialization.py} of PyTorch.
 */
public final class TorchFile {
  private static final String PICKLE = "data.pkl";
  private static final byte[] MAGIC = {
    (byte) 0x8a,
    10,
    0x6c,
    (byte) 0xfc,
    (byte) 0x9c,
    0x46,
    (byte) 0xf9,
    0x20,
    0x6a,
    (byte) 0xa8,
    0x50,
    0x19,
    '.'
  };
  private static final byte[] MAGIC_IN_DIGITS =
      "L119547037146038801333356L\n.".getBytes(StandardCharsets.US_ASCII);
  private static final int OLD_PICKLES = 5;
  private static final long OLD_VERSION = 1001;
  private static final int FRAME_BYTES = 9;
  private static final int PROTOCOL = 0x80;
  private static final int FRAME = 0x95;
  private final InputFile file;
  private final Object root;
  private final ByteOrder order;
  private final Storages storages;

  /** Where the elements of a storage are. */
  private interface Storages {
    @Nullable MemorySegment find(String key) throws CheckpointException;
  }

  private TorchFile(InputFile file, Object root, ByteOrder order, Storages storages) {
    this.file = file;
    this.root = root;
    this.order = order;
    this.storages = storages;
  }

  /** Whether it is a zip file or a pickle, of torch or not. */
  public static boolean recognises(InputFile file) {
    return ZipDirectory.isZip(file)
        || file.startsWith(MAGIC_IN_DIGITS)
        || (file.bytes().byteSize() > 2
            && (file.byteAt(0) & 0xFF) == PROTOCOL
            && file.byteAt(1) >= 1
            && file.byteAt(1) <= 5);
  }

  /**
   * Reads all but the storages.
   *
   * @throws CheckpointException if the file is damaged, or asks for what no weights need
   */
  public static TorchFile open(InputFile file) throws CheckpointException {
    return ZipDirectory.isZip(file) ? openZip(file) : openOld(file);
  }

  private static TorchFile openZip(InputFile file) throws CheckpointException {
    ZipDirectory zip = ZipDirectory.of(file);
    List<String> pickles =
        zip.names().stream()
            .filter(name -> name.equals(PICKLE) || name.endsWith("/" + PICKLE))
            .toList();
    if (pickles.size() != 1) {
      throw new CheckpointException(
          "%s is a zip file with %s %s, so not one that torch.save wrote"
              .formatted(file.path(), pickles.isEmpty() ? "no" : "more than one", PICKLE));
    }
    String pickle = pickles.getFirst();
    String folder = pickle.substring(0, pickle.length() - PICKLE.length());
    if (zip.names().contains(folder + "constants.pkl")) {
      throw new CheckpointException(
          file.path() + " is a TorchScript program (torch.jit.save), not weights alone");
    }
    MemorySegment bytes = Objects.requireNonNull(zip.find(pickle));
    long start = bytes.address() - file.bytes().address();
    Object root =
        new PickleMachine(file, start, start + bytes.byteSize(), new TorchObjects()).run();
    return new TorchFile(
        file,
        root,
        order(file, zip.find(folder + "byteorder")),
        key -> zip.find(folder + "data/" + key));
  }

  private static ByteOrder order(InputFile file, @Nullable MemorySegment record)
      throws CheckpointException {
    if (record == null || isText(record, "little")) {
      return ByteOrder.LITTLE_ENDIAN;
    }
    if (isText(record, "big")) {
      return ByteOrder.BIG_ENDIAN;
    }
    throw new CheckpointException(file.path() + ": its byteorder is neither little nor big");
  }

  private static boolean isText(MemorySegment record, String text) {
    return record.mismatch(MemorySegment.ofArray(text.getBytes(StandardCharsets.US_ASCII))) == -1;
  }

  private static TorchFile openOld(InputFile file) throws CheckpointException {
    if (!hasMagic(file)) {
      throw new CheckpointException(
          file.path()
              + " is a pickle, but not one that torch.save wrote: load it as pickle.dump left it, and"
              + " save the tensors with torch.save");
    }
    TorchObjects objects = new TorchObjects();
    List<Object> pickles = new ArrayList<>();
    long at = 0;
    for (int i = 0; i < OLD_PICKLES; i++) {
      PickleMachine pickle = new PickleMachine(file, at, file.bytes().byteSize(), objects);
      pickles.add(pickle.run());
      at = pickle.at();
    }
    if (!pickles.get(1).equals(OLD_VERSION)) {
      throw new CheckpointException(
          "%s is of another version of torch's old format than %d"
              .formatted(file.path(), OLD_VERSION));
    }
    Map<String, MemorySegment> storages = oldStorages(file, at, pickles.get(4), objects);
    return new TorchFile(file, pickles.get(3), ByteOrder.LITTLE_ENDIAN, storages::get);
  }

  private static boolean hasMagic(InputFile file) {
    return file.startsWith(MAGIC_IN_DIGITS)
        || file.holds(MAGIC, 2)
        || ((file.byteAt(2) & 0xFF) == FRAME && file.holds(MAGIC, 2 + FRAME_BYTES));
  }

  private static Map<String, MemorySegment> oldStorages(
      InputFile file, long at, Object keys, TorchObjects objects) throws CheckpointException {
    if (!(keys instanceof List<?> list)) {
      throw new CheckpointException(file.path() + " has no list of its storages");
    }
    Map<String, MemorySegment> storages = new HashMap<>();
    for (Object key : list) {
      TorchStorage storage = key instanceof String text ? objects.storages().get(text) : null;
      if (storage == null) {
        throw new CheckpointException(
            "%s lists a storage of which no tensor is a view".formatted(file.path()));
      }
      ByteReader in =
          new ByteReader(
              file,
              "storage %s of %s".formatted(StrictJson.shown(storage.key()), storage.described()),
              at,
              file.bytes().byteSize());
      long elements = in.u64();
      if (elements != storage.elements()) {
        throw in.damaged(at, "it has %s elements".formatted(Long.toUnsignedString(elements)));
      }
      MemorySegment bytes = file.bytes().asSlice(in.skip(storage.bytes()), storage.bytes());
      at = in.at();
      if (storages.put(storage.key(), bytes) != null) {
        throw new CheckpointException(
            "%s lists storage %s twice".formatted(file.path(), StrictJson.shown(storage.key())));
      }
    }
    return storages;
  }

  InputFile file() {
    return file;
  }

  /**
   * The dict that was saved.
   *
   * @throws CheckpointException if it was anything else
   */
  public Map<String, Object> root() throws CheckpointException {
    return dict(root)
        .orElseThrow(
            () -> new CheckpointException(file.path() + " holds no dict, so no weights by name"));
  }

  /** The value as a dict, if it is one. */
  @SuppressWarnings("unchecked") // the machine makes no other maps
  static Optional<Map<String, Object>> dict(@Nullable Object value) {
    return value instanceof Map<?, ?> map
        ? Optional.of((Map<String, Object>) map)
        : Optional.empty();
  }

  /** The tensors of a dict by their names, in its order; other values are left out. */
  public static Map<String, TorchTensor> tensors(Map<String, Object> dict) {
    Map<String, TorchTensor> tensors = new LinkedHashMap<>();
    dict.forEach(
        (name, value) -> {
          if (value instanceof TorchTensor tensor) {
            tensors.put(name, tensor);
          }
        });
    return tensors;
  }

  /**
   * A tensor as a view of the file.
   *
   * @throws CheckpointException if the file doesn't hold all of it
   */
  CheckpointReader.Entry entry(String name, TorchTensor tensor) throws CheckpointException {
    TorchStorage storage = tensor.storage();
    DType dtype = DType.named(storage.dtype());
    String what = "%s: %s".formatted(file.path(), StrictJson.shown(name));
    TensorData data = null;
    if (dtype != null) {
      MemorySegment bytes = storages.find(storage.key());
      if (bytes == null || bytes.byteSize() < storage.bytes()) {
        throw new CheckpointException(
            "%s is a view of storage %s, %s, of which the file has %d bytes"
                .formatted(
                    what,
                    StrictJson.shown(storage.key()),
                    storage.described(),
                    bytes == null ? 0 : bytes.byteSize()));
      }
      try {
        data =
            StridedData.of(
                dtype,
                order,
                bytes.asSlice(0, storage.bytes()),
                tensor.offset(),
                tensor.shape(),
                tensor.strides());
      } catch (IllegalArgumentException e) {
        throw new CheckpointException(what + " is damaged: " + e.getMessage(), e);
      }
    }
    return new CheckpointReader.Entry(name, storage.dtype(), tensor.shape(), data, file.path());
  }
}
