package dev.loupe.weights;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.format.SafetensorsReader;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/** Small models on disk, sound ones and broken ones. */
public final class ModelFolder {
  /** No two sizes are equal, that of a head (10) included: a mix-up shows. */
  public static final Gpt2Config ODD =
      new Gpt2Config(2, 5, 50, 11, 37, 70, Activation.GELU, 1e-6f, true, true, -1, 36);

  /** Few bytes, and no two sizes equal. */
  public static final Gpt2Config LEAST =
      new Gpt2Config(1, 2, 6, 4, 5, 24, Activation.GELU_NEW, 1e-5f, true, false, 4, 4);

  private ModelFolder() {}

  public static Path random(Path folder, Gpt2Config config, RandomCheckpoint.Layout layout)
      throws IOException {
    requireDistinct(config);
    RandomCheckpoint.write(config, 42, folder, layout, Progress.NONE);
    return folder;
  }

  /** A folder in {@code parent} with a model of {@link #ODD} sizes. */
  static Path odd(Path parent) throws IOException {
    return random(parent.resolve("odd"), ODD, RandomCheckpoint.Layout.PLAIN);
  }

  /** A reader that swaps two sizes must not get away with it. */
  static void requireDistinct(Gpt2Config config) {
    List<Integer> sizes =
        List.of(
            config.nLayer(),
            config.nHead(),
            config.headDim(),
            config.nEmbd(),
            config.nPositions(),
            config.vocabSize(),
            config.nInner());
    if (Set.copyOf(sizes).size() < sizes.size()) {
      throw new IllegalArgumentException("a test model with two equal sizes: " + config);
    }
  }

  public static Path weights(Path folder) {
    return folder.resolve("model.safetensors");
  }

  public static Path config(Path folder) {
    return folder.resolve("config.json");
  }

  /** A file with this header and this many zero bytes of data. */
  public static Path raw(Path file, String header, int dataBytes) throws IOException {
    return raw(file, header.getBytes(StandardCharsets.UTF_8), dataBytes);
  }

  public static Path raw(Path file, byte[] header, int dataBytes) throws IOException {
    ByteBuffer bytes =
        ByteBuffer.allocate(8 + header.length + dataBytes).order(ByteOrder.LITTLE_ENDIAN);
    bytes.putLong(header.length).put(header);
    return Files.write(file, bytes.array());
  }

  /** Reads a model, changes its tensors, and writes it in place of the old one. */
  static void rewrite(Path folder, Change change) throws IOException {
    Map<SafetensorsWriter.Entry, byte[]> tensors = new LinkedHashMap<>();
    try (Arena arena = Arena.ofConfined()) {
      for (CheckpointReader.Entry e :
          SafetensorsReader.entries(InputFile.map(weights(folder), arena))) {
        tensors.put(
            new SafetensorsWriter.Entry(e.name(), DType.valueOf(e.dtype()), e.shape()),
            stored(e).toArray(java.lang.foreign.ValueLayout.JAVA_BYTE));
      }
    }
    change.apply(tensors);
    write(weights(folder), tensors);
  }

  /** The bytes of a tensor, as the file has them. */
  public static MemorySegment stored(CheckpointReader.Entry entry) {
    return Objects.requireNonNull(entry.data()).stored();
  }

  interface Change {
    void apply(Map<SafetensorsWriter.Entry, byte[]> tensors);
  }

  public static void write(Path file, Map<SafetensorsWriter.Entry, byte[]> tensors)
      throws IOException {
    try (SafetensorsWriter out = SafetensorsWriter.create(file, List.copyOf(tensors.keySet()))) {
      for (Map.Entry<SafetensorsWriter.Entry, byte[]> tensor : tensors.entrySet()) {
        out.write(tensor.getKey().name(), MemorySegment.ofArray(tensor.getValue()));
      }
      out.commit();
    }
  }

  /** Removes the tensor and gives its description back. */
  static SafetensorsWriter.Entry take(Map<SafetensorsWriter.Entry, byte[]> tensors, String name) {
    for (SafetensorsWriter.Entry entry : tensors.keySet()) {
      if (entry.name().equals(name)) {
        tensors.remove(entry);
        return entry;
      }
    }
    throw new IllegalArgumentException(name);
  }

  /** Replaces a tensor by one of zeros. */
  static void reshape(Map<SafetensorsWriter.Entry, byte[]> tensors, String name, List<Long> shape) {
    SafetensorsWriter.Entry old = take(tensors, name);
    SafetensorsWriter.Entry entry = new SafetensorsWriter.Entry(name, old.dtype(), shape);
    tensors.put(entry, new byte[(int) entry.bytes()]);
  }

  /** Splits a model into shards, tensor i into shard i mod n, and deletes the whole file. */
  static Path shard(Path folder, int n) throws IOException {
    List<Map<SafetensorsWriter.Entry, byte[]>> shards = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      shards.add(new LinkedHashMap<>());
    }
    StringBuilder map = new StringBuilder();
    rewrite(
        folder,
        tensors -> {
          int i = 0;
          for (Map.Entry<SafetensorsWriter.Entry, byte[]> tensor : tensors.entrySet()) {
            shards.get(i % n).put(tensor.getKey(), tensor.getValue());
            map.append(map.isEmpty() ? "" : ",\n")
                .append('"')
                .append(tensor.getKey().name())
                .append("\": \"")
                .append(shardName(i % n))
                .append('"');
            i++;
          }
        });
    Files.delete(weights(folder));
    for (int i = 0; i < n; i++) {
      write(folder.resolve(shardName(i)), shards.get(i));
    }
    Files.writeString(
        index(folder), "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" + map + "}}\n");
    return folder;
  }

  static String shardName(int i) {
    return "model-0000" + i + ".safetensors";
  }

  static Path index(Path folder) {
    return folder.resolve("model.safetensors.index.json");
  }

  public static void replace(Path file, String from, String to) throws IOException {
    String text = Files.readString(file);
    if (!text.contains(from)) {
      throw new IllegalArgumentException(from + " is not in " + text);
    }
    Files.writeString(file, text.replace(from, to));
  }
}
