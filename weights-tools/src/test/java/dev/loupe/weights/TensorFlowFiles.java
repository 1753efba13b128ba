package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.US_ASCII;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Writes a TensorFlow checkpoint the way its BundleWriter and LevelDB's TableBuilder do: shared
 * beginnings of keys, a restart every few keys, small blocks so that there are several.
 */
public final class TensorFlowFiles {
  private static final int RESTART_EVERY = 3;
  private static final int BLOCK_BYTES = 300;

  private final ByteArrayOutputStream table = new ByteArrayOutputStream();
  private final Map<String, byte[]> rows = new TreeMap<>(); // "" first
  final List<ByteArrayOutputStream> shards = new ArrayList<>();
  private final List<int[]> blocks = new ArrayList<>(); // offset and size of each
  private final boolean bigEndian;

  public TensorFlowFiles(int shards, boolean bigEndian) {
    for (int i = 0; i < shards; i++) {
      this.shards.add(new ByteArrayOutputStream());
    }
    this.bigEndian = bigEndian;
    ByteArrayOutputStream header = new ByteArrayOutputStream();
    varintField(header, 1, shards);
    if (bigEndian) {
      varintField(header, 2, 1);
    }
    bytesField(header, 3, new byte[] {8, 1}); // VersionDef { producer: 1 }
    rows.put("", header.toByteArray());
  }

  /** The model under OpenAI's names, with hparams.json. */
  public static Path write(Checkpoint model, int shards, boolean bigEndian, Path folder)
      throws IOException {
    Files.createDirectories(folder);
    of(model, shards, bigEndian).save(folder, "model.ckpt");
    Gpt2Config c = model.config();
    Files.writeString(
        folder.resolve("hparams.json"),
        "{\"n_vocab\": %d, \"n_ctx\": %d, \"n_embd\": %d, \"n_head\": %d, \"n_layer\": %d}"
            .formatted(c.vocabSize(), c.nPositions(), c.nEmbd(), c.nHead(), c.nLayer()));
    return folder;
  }

  public static TensorFlowFiles of(Checkpoint model, int shards, boolean bigEndian) {
    TensorFlowFiles files = new TensorFlowFiles(shards, bigEndian);
    int number = 0;
    for (StoredTensor tensor : model.tensors()) {
      float[] values = new float[(int) tensor.elements()];
      tensor.read(0, values, 0, values.length);
      String name = tensor.name();
      boolean conv = name.startsWith("h.") && tensor.shape().size() == 2;
      List<Long> shape = new ArrayList<>(tensor.shape());
      if (conv) {
        shape.addFirst(1L);
      }
      String last = name.endsWith(".bias") ? "/b" : name.contains("ln_") ? "/g" : conv ? "/w" : "";
      String stem = name.substring(0, name.lastIndexOf('.')).replaceFirst("^h\\.", "h");
      files.put("model/" + stem.replace('.', '/') + last, shape, values, number++ % shards);
    }
    return files;
  }

  public void put(String name, List<Long> shape, float[] values, int shard) {
    ByteBuffer bytes =
        ByteBuffer.allocate(4 * values.length)
            .order(bigEndian ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN);
    bytes.asFloatBuffer().put(values);
    put(name, 1, shape, bytes.array(), shard);
  }

  public void put(String name, int dtype, List<Long> shape, byte[] bytes, int shard) {
    ByteArrayOutputStream dims = new ByteArrayOutputStream();
    for (long extent : shape) {
      ByteArrayOutputStream dim = new ByteArrayOutputStream();
      varintField(dim, 1, extent);
      bytesField(dims, 2, dim.toByteArray());
    }
    ByteArrayOutputStream entry = new ByteArrayOutputStream();
    varintField(entry, 1, dtype);
    bytesField(entry, 2, dims.toByteArray());
    if (shard != 0) {
      varintField(entry, 3, shard);
    }
    if (shards.get(shard).size() != 0) {
      varintField(entry, 4, shards.get(shard).size());
    }
    varintField(entry, 5, bytes.length);
    entry.write((6 << 3) | 5);
    u32(entry, masked(bytes));
    shards.get(shard).writeBytes(bytes);
    row(name, entry.toByteArray());
  }

  public void row(String key, byte[] value) {
    rows.put(key, value);
  }

  public void save(Path folder, String prefix) throws IOException {
    Files.write(folder.resolve(prefix + ".index"), index());
    for (int i = 0; i < shards.size(); i++) {
      String name = String.format("%s.data-%05d-of-%05d", prefix, i, shards.size());
      Files.write(folder.resolve(name), shards.get(i).toByteArray());
    }
  }

  public byte[] index() {
    table.reset();
    blocks.clear();
    Map<String, byte[]> index = new TreeMap<>();
    Map<String, byte[]> block = new TreeMap<>();
    int size = 0;
    for (Map.Entry<String, byte[]> row : rows.entrySet()) {
      block.put(row.getKey(), row.getValue());
      size += row.getKey().length() + row.getValue().length;
      if (size > BLOCK_BYTES) {
        index.put(row.getKey(), block(block));
        block.clear();
        size = 0;
      }
    }
    if (!block.isEmpty()) {
      index.put("~", block(block));
    }
    return finished(index);
  }

  /** An index whose index block names one empty block several times. */
  public byte[] repeating(int times) {
    table.reset();
    blocks.clear();
    byte[] empty = block(Map.of());
    Map<String, byte[]> index = new TreeMap<>();
    for (int i = 0; i < times; i++) {
      index.put("k%05d".formatted(i), empty);
    }
    return finished(index);
  }

  private byte[] finished(Map<String, byte[]> index) {
    byte[] meta = block(Map.of());
    byte[] indexHandle = block(index);
    ByteArrayOutputStream footer = new ByteArrayOutputStream();
    footer.writeBytes(meta);
    footer.writeBytes(indexHandle);
    footer.writeBytes(new byte[40 - footer.size()]);
    u32(footer, 0x8b80fb57);
    u32(footer, 0xdb477524);
    table.writeBytes(footer.toByteArray());
    return table.toByteArray();
  }

  /** Makes the checksums of a damaged index right again, as far as it goes. */
  byte[] sealed(byte[] index) {
    for (int[] block : blocks) {
      int end = block[0] + block[1] + 1;
      if (end + 4 <= index.length) {
        ByteBuffer.wrap(index)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putInt(end, masked(Arrays.copyOfRange(index, block[0], end)));
      }
    }
    return index;
  }

  /** Appends a block and gives its handle. */
  private byte[] block(Map<String, byte[]> entries) {
    ByteArrayOutputStream block = new ByteArrayOutputStream();
    List<Integer> restarts = new ArrayList<>(List.of(0));
    String before = "";
    int count = 0;
    for (Map.Entry<String, byte[]> entry : entries.entrySet()) {
      String key = entry.getKey();
      int shared = 0;
      if (count > 0 && count % RESTART_EVERY == 0) {
        restarts.add(block.size());
      } else {
        while (shared < Math.min(before.length(), key.length())
            && before.charAt(shared) == key.charAt(shared)) {
          shared++;
        }
      }
      varint(block, shared);
      varint(block, key.length() - shared);
      varint(block, entry.getValue().length);
      block.writeBytes(key.substring(shared).getBytes(US_ASCII));
      block.writeBytes(entry.getValue());
      before = key;
      count++;
    }
    restarts.forEach(at -> u32(block, at));
    u32(block, restarts.size());
    ByteArrayOutputStream handle = new ByteArrayOutputStream();
    varint(handle, table.size());
    varint(handle, block.size());
    blocks.add(new int[] {table.size(), block.size()});
    block.write(0);
    u32(block, masked(block.toByteArray()));
    table.writeBytes(block.toByteArray());
    return handle.toByteArray();
  }

  /** Bit by bit, with Castagnoli's polynomial turned around. */
  private static int masked(byte[] bytes) {
    int crc = -1;
    for (byte b : bytes) {
      crc ^= b & 0xFF;
      for (int bit = 0; bit < 8; bit++) {
        crc = (crc >>> 1) ^ ((crc & 1) == 0 ? 0 : 0x82f63b78);
      }
    }
    crc = ~crc;
    return ((crc >>> 15) | (crc << 17)) + 0xa282ead8;
  }

  static void varintField(ByteArrayOutputStream out, int field, long value) {
    varint(out, (long) field << 3);
    varint(out, value);
  }

  static void bytesField(ByteArrayOutputStream out, int field, byte[] value) {
    varint(out, ((long) field << 3) | 2);
    varint(out, value.length);
    out.writeBytes(value);
  }

  static void varint(ByteArrayOutputStream out, long value) {
    while ((value & ~0x7FL) != 0) {
      out.write((int) ((value & 0x7F) | 0x80));
      value >>>= 7;
    }
    out.write((int) value);
  }

  private static void u32(ByteArrayOutputStream out, int value) {
    for (int shift = 0; shift < 32; shift += 8) {
      out.write(value >>> shift);
    }
  }
}
