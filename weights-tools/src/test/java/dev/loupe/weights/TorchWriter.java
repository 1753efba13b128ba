package dev.loupe.weights;

import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;

/** Writes what torch.save would, in both of its containers. */
public final class TorchWriter {
  private static final Map<DType, String> TYPES =
      Map.of(DType.F64, "Double", DType.F32, "Float", DType.F16, "Half", DType.BF16, "BFloat16");

  /** How a tensor lies in its storage. */
  public enum Lie {
    /** Row-major, in a storage of its own. */
    DENSE,
    /** In one storage with all others, something between. */
    SHARED,
    /** Column-major. */
    TRANSPOSED,
    /** Every second element. */
    SPACED
  }

  private final int protocol;
  private final Lie lie;
  private final boolean bigEndian;
  private final Map<String, byte[]> storages = new LinkedHashMap<>();
  private final Map<String, Integer> elementBytes = new LinkedHashMap<>();
  private boolean isOld;
  private final ByteArrayOutputStream shared = new ByteArrayOutputStream();

  public TorchWriter(int protocol, Lie lie, boolean bigEndian) {
    this.protocol = protocol;
    this.lie = lie;
    this.bigEndian = bigEndian;
  }

  public static TorchWriter plain() {
    return new TorchWriter(2, Lie.DENSE, false);
  }

  /** The model as a state dict in a file of torch before or since 1.6. */
  public static void write(Checkpoint model, boolean old, Path file) throws IOException {
    TorchWriter writer = plain();
    Object root = PickleWriter.orderedDict(writer.stateDict(tensors(model)));
    Files.write(file, old ? writer.old(root) : writer.zip("a/", root));
  }

  public static Map<SafetensorsWriter.Entry, byte[]> tensors(Checkpoint model) {
    Map<SafetensorsWriter.Entry, byte[]> all = new LinkedHashMap<>();
    try (Arena arena = Arena.ofConfined()) {
      for (StoredTensor t : model.tensors()) {
        all.put(
            new SafetensorsWriter.Entry("transformer." + t.name(), t.dtype(), t.shape()),
            t.data(arena).toArray(ValueLayout.JAVA_BYTE));
      }
    }
    return all;
  }

  /** The tensors of a model, which stays. */
  public static Map<SafetensorsWriter.Entry, byte[]> tensors(Path folder) throws IOException {
    Map<SafetensorsWriter.Entry, byte[]> all = new LinkedHashMap<>();
    ModelFolder.rewrite(folder, all::putAll);
    return all;
  }

  /** The tensors as the values of a state dict. */
  public Map<String, Object> stateDict(Map<SafetensorsWriter.Entry, byte[]> tensors) {
    Map<String, Object> dict = new LinkedHashMap<>();
    tensors.forEach((entry, data) -> dict.put(entry.name(), tensor(entry, data)));
    return dict;
  }

  public PickleWriter.Pickled tensor(SafetensorsWriter.Entry entry, byte[] data) {
    int size = entry.dtype().bytes();
    int count = data.length / size;
    List<Long> strides = new ArrayList<>();
    long step = 1;
    for (long extent : entry.shape().reversed()) {
      strides.addFirst(step);
      step *= extent;
    }
    boolean transposed = lie == Lie.TRANSPOSED && entry.shape().size() == 2;
    if (transposed) {
      strides = List.of(1L, entry.shape().getFirst());
    }
    if (lie == Lie.SPACED) {
      strides = strides.stream().map(stride -> 2 * stride).toList();
    }
    byte[] stored = new byte[lie == Lie.SPACED ? 2 * data.length : data.length];
    int columns = entry.shape().isEmpty() ? 1 : entry.shape().getLast().intValue();
    for (int i = 0; i < count; i++) {
      int to = lie == Lie.SPACED ? 2 * i : i;
      if (transposed) {
        to = i % columns * (count / columns) + i / columns;
      }
      for (int b = 0; b < size; b++) {
        stored[to * size + (bigEndian ? size - 1 - b : b)] = data[i * size + b];
      }
    }
    if (lie == Lie.SHARED) {
      shared.writeBytes(new byte[3 * size]);
      long offset = shared.size() / size;
      shared.writeBytes(stored);
      elementBytes.put("0", size);
      return view(entry.dtype(), "0", offset, entry.shape(), strides);
    }
    String key = Integer.toString(storages.size());
    storages.put(key, stored);
    elementBytes.put(key, size);
    return view(entry.dtype(), key, 0, entry.shape(), strides);
  }

  /** A tensor that is a view of a storage, which is there when the pickle is written. */
  public PickleWriter.Pickled view(
      DType dtype, String key, long offset, List<Long> shape, List<Long> strides) {
    return out -> {
      PickleWriter.Pickled storage = storage(TYPES.get(dtype) + "Storage", key, elements(key));
      PickleWriter.Pickled oldStorage = // says that it is no view of another
          to -> {
            Object type = PickleWriter.global("torch", TYPES.get(dtype) + "Storage");
            to.value(Arrays.asList("storage", type, key, "cpu", elements(key), null)).op('Q');
          };
      out.value(rebuild(isOld ? oldStorage : storage, offset, shape, strides));
    };
  }

  public static PickleWriter.Pickled rebuild(
      PickleWriter.Pickled storage, Object offset, List<?> shape, List<?> strides) {
    return PickleWriter.call(
        "torch._utils",
        "_rebuild_tensor_v2",
        List.of(
            storage,
            offset,
            shape,
            strides,
            false,
            PickleWriter.call("collections", "OrderedDict", List.of())));
  }

  public static PickleWriter.Pickled storage(String type, String key, Object elements) {
    return out ->
        out.value(List.of("storage", PickleWriter.global("torch", type), key, "cuda:0", elements))
            .op('Q');
  }

  public void put(String key, byte[] storage, int bytesPerElement) {
    storages.put(key, storage);
    elementBytes.put(key, bytesPerElement);
  }

  private long elements(String key) {
    byte[] storage = storages().get(key);
    return storage == null ? 1 : storage.length / elementBytes.getOrDefault(key, 1);
  }

  private Map<String, byte[]> storages() {
    if (lie == Lie.SHARED) {
      storages.put("0", shared.toByteArray());
    }
    return storages;
  }

  /** Since torch 1.6. */
  public byte[] zip(String folder, Object root) throws IOException {
    Map<String, byte[]> files = new LinkedHashMap<>();
    files.put("data.pkl", PickleWriter.of(protocol, root));
    files.put(".format_version", ascii("1"));
    files.put("byteorder", ascii(bigEndian ? "big" : "little"));
    storages().forEach((key, data) -> files.put("data/" + key, data));
    files.put("version", ascii("3\n"));
    return zip(folder, files, false);
  }

  public static byte[] zip(String folder, Map<String, byte[]> files, boolean packed)
      throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ZipOutputStream zip = new ZipOutputStream(bytes)) {
      zip.setMethod(packed ? ZipOutputStream.DEFLATED : ZipOutputStream.STORED);
      for (Map.Entry<String, byte[]> file : files.entrySet()) {
        ZipEntry entry = new ZipEntry(folder + file.getKey());
        if (!packed) {
          CRC32 crc = new CRC32();
          crc.update(file.getValue());
          entry.setCrc(crc.getValue());
          entry.setSize(file.getValue().length);
        }
        zip.putNextEntry(entry);
        zip.write(file.getValue());
        zip.closeEntry();
      }
    }
    return bytes.toByteArray();
  }

  /** Before torch 1.6. */
  public byte[] old(Object root) {
    isOld = true;
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    byte[] magic = new BigInteger("1950a86a20f9469cfc6c", 16).toByteArray();
    bytes.writeBytes(
        PickleWriter.of(
            protocol,
            (PickleWriter.Pickled)
                out -> {
                  out.op(0x8a).op(magic.length);
                  for (int i = magic.length - 1; i >= 0; i--) {
                    out.op(magic[i]);
                  }
                }));
    bytes.writeBytes(PickleWriter.of(protocol, 1001));
    bytes.writeBytes(PickleWriter.of(protocol, Map.of("little_endian", true)));
    bytes.writeBytes(PickleWriter.of(protocol, root));
    bytes.writeBytes(PickleWriter.of(protocol, PickleWriter.list(storages().keySet().toArray())));
    storages()
        .forEach(
            (key, data) -> {
              bytes.writeBytes(
                  ByteBuffer.allocate(8)
                      .order(ByteOrder.LITTLE_ENDIAN)
                      .putLong(elements(key))
                      .array());
              bytes.writeBytes(data);
            });
    return bytes.toByteArray();
  }

  public static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }
}
