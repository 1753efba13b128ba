package dev.loupe.weights.format;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.Same;
import dev.loupe.weights.TensorFlowFiles;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TensorFlowReaderTest {
  private static final Gpt2Config CONFIG = LlmCReaderTest.CONFIG;

  @TempDir Path folder;

  private Path model() throws IOException {
    return ModelFolder.random(folder.resolve("model"), CONFIG, RandomCheckpoint.Layout.PLAIN);
  }

  private Path converted() throws IOException {
    try (Checkpoint model = Checkpoint.open(model())) {
      return TensorFlowFiles.write(model, 1, false, folder.resolve("117M"));
    }
  }

  private static void refused(Path source, Object... words) {
    Refusal.of(() -> Checkpoint.open(source).close(), words);
  }

  @ParameterizedTest
  @CsvSource({"1, false", "3, false", "1, true"})
  void opensToTheSameBits(int shards, boolean bigEndian) throws IOException {
    Path made = folder.resolve("117M");
    try (Checkpoint model = Checkpoint.open(model())) {
      TensorFlowFiles.write(model, shards, bigEndian, made);
      for (String given : List.of("", "model.ckpt.index", "model.ckpt")) {
        try (Checkpoint opened = Checkpoint.open(made.resolve(given))) {
          Same.model(model, opened);
          assertEquals(shards, opened.files().size());
        }
      }
    }
  }

  /** What TensorFlow 2.21 wrote of two tensors, with {@code tf.raw_ops.SaveV2}. */
  @Test
  void readsWhatTensorFlowWrote() throws IOException {
    Path index = folder.resolve("model.ckpt.index");
    Files.write(
        index,
        HexFormat.of()
            .parseHex(
                "00000608011a0208010013176d6f64656c2f68302f6d6c702f635f66632f770801120c120208011202"
                    + "0802120208032818357aebf5ab0606116c6e5f662f620801120412020802201828083554"
                    + "57c22c000000000100000000b1a64749000000000100000000c0f2a1b00001026e005800"
                    + "0000000100000000b5999a745d086a0e0000000000000000000000000000000000000000"
                    + "0000000000000000000000000000000057fb808b247547db"));
    Path data = folder.resolve("model.ckpt.data-00000-of-00001");
    Files.write(
        data,
        HexFormat.of()
            .parseHex("0000803f0000004000004040000080400000a0400000c0400000003f000000c0"));
    try (Arena arena = Arena.ofConfined()) {
      InputFile file = InputFile.map(index, arena);
      List<SortedTable.Row> rows = SortedTable.read(file);
      assertEquals(
          List.of("", "model/h0/mlp/c_fc/w", "model/ln_f/b"),
          rows.stream().map(SortedTable.Row::key).toList());
      TensorBundle.Header header = TensorBundle.Header.read(file, rows.getFirst());
      assertEquals(new TensorBundle.Header(1, ByteOrder.LITTLE_ENDIAN), header);
      assertEquals(data, header.dataFile(index, 0));
      List<float[]> values = List.of(new float[] {1, 2, 3, 4, 5, 6}, new float[] {.5f, -2});
      List<List<Long>> shapes = List.of(List.of(2L, 3L), List.of(2L));
      for (int i = 0; i < 2; i++) {
        TensorBundle.Tensor tensor = TensorBundle.Tensor.read(file, rows.get(i + 1));
        CheckpointReader.Entry entry =
            tensor.entry(InputFile.map(data, arena), header.order(), "x");
        assertEquals(shapes.get(i), entry.shape());
        float[] read = new float[values.get(i).length];
        Objects.requireNonNull(entry.data()).read(0, read, 0, read.length);
        assertArrayEquals(values.get(i), read);
      }
    }
  }

  @Test
  void whatIsNoWeightIsLeftAside() throws IOException {
    Path made = converted();
    try (Checkpoint model = Checkpoint.open(folder.resolve("model"))) {
      TensorFlowFiles files = TensorFlowFiles.of(model, 1, false);
      files.put("global_step", 9, List.of(), new byte[8], 0);
      files.put("model/wte/Adam", List.of(1L, 2L), new float[2], 0);
      files.save(made, "model.ckpt");
      try (Checkpoint opened = Checkpoint.open(made)) {
        Same.model(model, opened);
        assertEquals(List.of("global_step", "model/wte/Adam"), opened.ignored());
      }
    }
  }

  @Test
  void weightsThatAreMissing() throws IOException {
    Path made = converted();
    TensorFlowFiles files = new TensorFlowFiles(1, false);
    files.put("model/wte", List.of(37L, 50L), new float[37 * 50], 0);
    files.save(made, "model.ckpt");
    refused(made, "no tensor wpe.weight", "model.ckpt.data-00000-of-00001");
  }

  /** Fine-tuning writes model-200.index and the like, and a file that names the latest. */
  @Test
  void theLatestOfSeveral() throws IOException {
    Path made = converted();
    for (String file : List.of(".index", ".data-00000-of-00001")) {
      Files.move(made.resolve("model.ckpt" + file), made.resolve("model-200" + file));
    }
    refused(made, made, "model.ckpt.index");
    Path pointer = made.resolve("checkpoint");
    Files.writeString(
        pointer,
        """
        model_checkpoint_path: "/content/checkpoint/run1/model-200"
        all_model_checkpoint_paths: "model-100"
        """);
    try (Checkpoint model = Checkpoint.open(folder.resolve("model"));
        Checkpoint opened = Checkpoint.open(made)) {
      Same.model(model, opened);
    }
    Files.writeString(pointer, "model_checkpoint_path: \"model-300\"\n");
    refused(made, "model-300.index does not exist");
    for (String bad : List.of("", "\"\"", "\"..\"", "\"a\\\\b\"", "\"x\ny\"", "model-200")) {
      Files.writeString(pointer, "model_checkpoint_path: " + bad);
      refused(made, pointer, "names no checkpoint");
    }
    Files.writeString(pointer, "model_checkpoint_path: \"model-200\"\n");
    Files.writeString(made.resolve("model-200.index"), "no table");
    refused(made, "model-200.index is no index");
  }

  @Test
  void filesThatAreMissing() throws IOException {
    Path made = converted();
    Path hparams = made.resolve("hparams.json");
    String sound = Files.readString(hparams);
    Files.writeString(hparams, sound.replace("n_head", "heads"));
    refused(made, hparams, "has no n_head");
    Files.writeString(hparams, sound.replace("50,", "51,"));
    refused(made, hparams, "n_embd 51 is not a multiple");
    Files.writeString(hparams, sound.replace("50,", "50.5,"));
    refused(made, hparams, "n_embd is 50.5");
    Files.writeString(hparams, sound.replace("{", "{\"n_head\": 2, "));
    refused(made, hparams, "n_head twice");
    Files.delete(hparams);
    refused(made, hparams, "does not exist");
    Files.writeString(hparams, sound);
    Files.delete(made.resolve("model.ckpt.data-00000-of-00001"));
    refused(made, "model.ckpt.data-00000-of-00001 does not exist");
  }

  @Test
  void damagedData() throws IOException {
    Path made = converted();
    Path data = made.resolve("model.ckpt.data-00000-of-00001");
    byte[] sound = Files.readAllBytes(data);
    byte[] bytes = sound.clone();
    bytes[bytes.length - 1] ^= 1; // of ln_f/b, which is small enough to be checked
    Files.write(data, bytes);
    refused(made, data, "model/ln_f/b at byte " + (sound.length - 200), "checksum");
    Files.write(data, Arrays.copyOf(sound, sound.length - 1));
    refused(made, data, "cut short", "model/ln_f/b", sound.length);
  }

  @Test
  void damagedIndex() throws IOException {
    Path made = converted();
    Path index = made.resolve("model.ckpt.index");
    byte[] sound = Files.readAllBytes(index);
    for (int at = 0; at < sound.length; at++) {
      byte[] bytes = sound.clone();
      bytes[at] ^= 4;
      Files.write(index, bytes);
      int footer = sound.length - 48;
      boolean zeros = at >= footer && sound[at] == 0; // between the handles and the magic
      boolean metaBlock = at >= metaBlockAt(sound) && at < metaBlockAt(sound) + 13;
      boolean metaHandle = at >= footer && at < footer + 3;
      if (!zeros && !metaBlock && !metaHandle) {
        refused(made, index);
      }
    }
  }

  /** The meta block lies before the index block, holds nothing, and nobody reads it. */
  private static int metaBlockAt(byte[] index) {
    int at = index.length - 48;
    int offset = index[at] & 0x7F;
    for (int shift = 7; index[at++] < 0; shift += 7) {
      offset |= (index[at] & 0x7F) << shift;
    }
    return offset;
  }

  @Test
  void whatNoTrainerWrites() throws IOException {
    Path made = converted();
    Path index = made.resolve("model.ckpt.index");
    TensorFlowFiles noHeader = new TensorFlowFiles(1, false);
    noHeader.row("", new byte[0]);
    Files.write(index, noHeader.index());
    refused(made, index, "0 data files");

    for (String[] bad :
        new String[][] {
          {"shard_id", "18 07", "data file 7 of 1"},
          {"offset", "20 ff ff ff ff ff ff ff ff ff 01", "from byte -1"},
          {"end", "20 ff ff ff ff ff ff ff ff 7f 28 7f", "cut short"},
          {"slices", "3a 00", "slices"},
          {"dim", "12 0d 12 0b 08 ff ff ff ff ff ff ff ff ff 01", "shape [-1]"},
          {"varint", "08 ff ff ff ff ff ff ff ff ff ff 01", "more than 10 bytes"},
          {"length", "12 7f", "127 more bytes"},
          {"group", "0b", "wire type 3"},
          {"field", "00", "no field 0"},
          {"kind", "0a 00", "not a number"},
          {"checksum", "30 01", "not a number of 4 bytes"},
          {"message", "10 01", "not a message"}
        }) {
      TensorFlowFiles files = new TensorFlowFiles(1, false);
      files.row("model/" + bad[0], hex(bad[1]));
      Files.write(index, files.index());
      refused(made, index.toString().replace(".index", ""), bad[2]);
    }
  }

  /** Or a small file could have a large block read thousands of times. */
  @Test
  void blocksThatAreNamedAgain() throws IOException {
    Path made = converted();
    Path index = made.resolve("model.ckpt.index");
    Files.write(index, new TensorFlowFiles(1, false).repeating(1));
    refused(made, index, "no header");
    Files.write(index, new TensorFlowFiles(1, false).repeating(2));
    refused(made, index, "no block can have 8 bytes from byte 0");
  }

  @Test
  void shapesThatTheBytesAreNot() throws IOException {
    Path made = converted();
    for (List<Long> shape :
        List.of(List.of(5L), List.of(1L << 40, 1L << 40), List.of(1L << 62), List.<Long>of())) {
      TensorFlowFiles files = new TensorFlowFiles(1, false);
      files.put("model/wte", 1, shape, new byte[16], 0);
      files.save(made, "model.ckpt");
      refused(made, "model/wte", shape, "16 bytes");
    }
    TensorFlowFiles files = new TensorFlowFiles(1, false);
    files.put("model/wte", 3, List.of(37L, 50L), new byte[37 * 50 * 4], 0);
    files.save(made, "model.ckpt");
    refused(made, "wte.weight is stored as TensorFlow's type 3");
  }

  @Test
  void compressedBlocks() throws IOException {
    Path made = converted();
    Path index = made.resolve("model.ckpt.index");
    byte[] bytes = Files.readAllBytes(index);
    bytes[metaBlockAt(bytes) - 5] = 1; // the last data block's type
    Files.write(index, bytes);
    refused(made, index, "compressed (type 1)");
  }

  @Test
  void namesOfOpenAi() {
    assertEquals("h.11.attn.c_attn.weight", TensorFlowReader.name("model/h11/attn/c_attn/w"));
    assertEquals("h.0.ln_2.weight", TensorFlowReader.name("model/h0/ln_2/g"));
    assertEquals("h.0.mlp.c_proj.bias", TensorFlowReader.name("model/h0/mlp/c_proj/b"));
    assertEquals("wpe.weight", TensorFlowReader.name("model/wpe"));
    assertEquals("model/h0/ln_1/g/Adam", TensorFlowReader.name("model/h0/ln_1/g/Adam"));
  }

  private static byte[] hex(String text) {
    return HexFormat.ofDelimiter(" ").parseHex(text);
  }
}
