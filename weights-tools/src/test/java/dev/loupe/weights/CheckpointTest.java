package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.ConfigWriter;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class CheckpointTest {
  private static final Path DEMO = Path.of("..", "test-data", "shakespeare");

  @TempDir Path temporary;

  private static float[] floats(StoredTensor tensor) {
    float[] values = new float[(int) tensor.elements()];
    tensor.read(0, values, 0, values.length);
    return values;
  }

  private Path odd() throws IOException {
    return ModelFolder.random(
        temporary.resolve("odd"), ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
  }

  private void refused(Path source, Object... words) {
    Refusal.of(() -> Checkpoint.open(source).close(), words);
  }

  @Test
  void opensTheDemoModel() throws IOException {
    try (Checkpoint demo = Checkpoint.open(DEMO)) {
      assertEquals(2_915_328, demo.parameters());
      assertEquals(
          new Gpt2Config(
              6, 3, 192, 256, 1024, 768, Activation.GELU_NEW, 1e-5f, true, false, 1023, 1023),
          demo.config());
      assertFalse(demo.has("lm_head.weight"));
      assertEquals(DEMO, demo.source());
      assertEquals(List.of(ModelFolder.weights(DEMO)), demo.files());
      assertEquals(
          "b50b41ca6b77f07de65f29a3223f150c7110da2ffb3a5f7e87eabf9be4211de9", demo.sha256());
      StoredTensor cFc = demo.tensor("h.5.mlp.c_fc.weight");
      assertEquals(List.of(192L, 768L), cFc.shape());
      assertEquals(DType.F16, cFc.dtype());
      assertTrue(cFc.data(Arena.ofAuto()).isMapped() && cFc.data(Arena.ofAuto()).isReadOnly());
    }
  }

  @Test
  void opensTheFileAsWellAsTheFolder() throws IOException {
    try (Checkpoint byFile = Checkpoint.open(ModelFolder.weights(DEMO))) {
      assertEquals(2_915_328, byFile.parameters());
    }
  }

  @Test
  void tellsFormatsByContent() throws IOException {
    Path folder = odd();
    Path renamed = folder.resolve("weights.bin");
    Files.move(ModelFolder.weights(folder), renamed);
    try (Checkpoint checkpoint = Checkpoint.open(renamed)) {
      assertEquals(ModelFolder.ODD, checkpoint.config());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "F32, false, false, false",
    "F32, true, true, true",
    "F16, true, false, true",
    "BF16, false, true, false",
    "F64, true, true, false",
    "F16, false, true, true"
  })
  void everyLayoutHoldsTheSameModel(DType dtype, boolean head, boolean prefix, boolean buffers)
      throws IOException {
    RandomCheckpoint.Layout plain = new RandomCheckpoint.Layout(DType.F32, head, false, false);
    Path a = ModelFolder.random(temporary.resolve("a"), ModelFolder.ODD, plain);
    Path b =
        ModelFolder.random(
            temporary.resolve("b"),
            ModelFolder.ODD,
            new RandomCheckpoint.Layout(dtype, head, prefix, buffers));
    try (Checkpoint expected = Checkpoint.open(a);
        Checkpoint actual = Checkpoint.open(b)) {
      assertEquals(ModelFolder.ODD, actual.config());
      assertEquals(head, actual.has("lm_head.weight"));
      assertTrue(actual.has("h.1.attn.c_attn.bias"));
      assertEquals(buffers ? 4 : 0, actual.ignored().size());
      assertEquals(expected.parameters(), actual.parameters());
      assertEquals(
          expected.tensors().stream().map(StoredTensor::name).toList(),
          actual.tensors().stream().map(StoredTensor::name).toList());
      for (StoredTensor tensor : expected.tensors()) {
        StoredTensor stored = actual.tensor(tensor.name());
        assertEquals(dtype, stored.dtype());
        assertEquals(tensor.shape(), stored.shape());
        // the deviation from f32 is that of the type: one rounding
        MemorySegment rounded =
            MemorySegment.ofArray(new byte[(int) stored.data(Arena.ofAuto()).byteSize()]);
        float[] exact = floats(tensor);
        dtype.encode(exact, 0, exact.length, rounded, 0);
        assertEquals(-1, rounded.mismatch(stored.data(Arena.ofAuto())), tensor.name());
      }
    }
  }

  @Test
  void readsPartsOfATensor() throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(odd())) {
      StoredTensor wpe = checkpoint.tensor("wpe.weight");
      float[] all = floats(wpe);
      float[] part = new float[5];
      wpe.read(50, part, 1, 3);
      assertArrayEquals(new float[] {0, all[50], all[51], all[52], 0}, part);
      assertThrows(IndexOutOfBoundsException.class, () -> wpe.read(548, part, 0, 3));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 3, 7})
  void readsShards(int n) throws IOException {
    Path folder = odd();
    Path whole =
        ModelFolder.random(
            temporary.resolve("whole"), ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
    ModelFolder.shard(folder, n);
    for (Path source : List.of(folder, ModelFolder.index(folder))) {
      try (Checkpoint shards = Checkpoint.open(source);
          Checkpoint expected = Checkpoint.open(whole)) {
        assertEquals(n, shards.files().size());
        assertEquals(folder.resolve(ModelFolder.shardName(0)), shards.files().getFirst());
        assertEquals(expected.parameters(), shards.parameters());
        for (StoredTensor tensor : expected.tensors()) {
          assertEquals(
              -1,
              tensor
                  .data(Arena.ofAuto())
                  .mismatch(shards.tensor(tensor.name()).data(Arena.ofAuto())));
        }
        assertEquals(64, shards.sha256().length());
      }
    }
  }

  @Test
  void refusesBrokenShards() throws IOException {
    Path folder = ModelFolder.shard(odd(), 2);
    Path index = ModelFolder.index(folder);
    String sound = Files.readString(index);

    ModelFolder.replace(index, "\"wte.weight\":", "\"wxe.weight\":");
    refused(folder, ModelFolder.shardName(0), "has no wxe.weight", index.getFileName());
    for (String name :
        List.of(
            "../" + ModelFolder.shardName(0), "/etc/passwd", "..", ".", "", "a\\\\b", "a\\u0000")) {
      Files.writeString(index, sound.replace(ModelFolder.shardName(0), name));
      refused(folder, index, "not the name of a file beside it");
    }
    for (String text :
        List.of(
            "{\"weight_map\": []}",
            "{\"weight_map\": {\"a\": 1}}",
            "{\"weight_map\": {}, \"weight_map\": {}}",
            "{\"weight_map\": {\"a\": \"b\"}",
            "{}")) {
      Files.writeString(index, text);
      refused(folder, index, text.equals("{}") ? "has no weight_map" : "");
    }
    Files.writeString(index, "{\"weight_map\": {}}");
    refused(folder, "no tensor wte.weight", "no weights at all");

    Files.writeString(index, sound);
    Files.delete(folder.resolve(ModelFolder.shardName(1)));
    refused(folder, folder.resolve(ModelFolder.shardName(1)), "does not exist");
    Files.writeString(folder.resolve(ModelFolder.shardName(1)), "version https://git-lfs");
    refused(folder, folder.resolve(ModelFolder.shardName(1)), "git lfs pull");
    Files.delete(ModelFolder.config(folder));
    refused(folder, ModelFolder.config(folder), "does not exist");
  }

  @Test
  void aConfigIsNoModel() {
    refused(
        ModelFolder.config(DEMO), ModelFolder.config(DEMO), "no index", "give the model's folder");
  }

  @Test
  void saysWhatItLookedFor() throws IOException {
    Path nowhere = temporary.resolve("nowhere");
    refused(nowhere, nowhere, "does not exist", "config.json", "model.safetensors");
    Path empty = Files.createDirectory(temporary.resolve("empty"));
    refused(empty, empty, "no model.safetensors or model.safetensors.index.json");
    Path folder = odd();
    Files.delete(ModelFolder.config(folder));
    refused(folder, ModelFolder.config(folder), "does not exist");
    Files.createDirectory(ModelFolder.config(folder));
    refused(folder, ModelFolder.config(folder), "not a regular file");
  }

  @Test
  void refusesFilesThatCannotBeRead() throws IOException {
    Path folder = odd();
    assertTrue(ModelFolder.weights(folder).toFile().setReadable(false));
    assumeFalse(Files.isReadable(ModelFolder.weights(folder)), "this user may read anything");
    refused(folder, ModelFolder.weights(folder), "permission denied");
  }

  @Test
  void aTruncatedFileSaysSo() throws IOException {
    Path file = ModelFolder.weights(odd());
    byte[] bytes = Files.readAllBytes(file);
    Files.write(file, java.util.Arrays.copyOf(bytes, bytes.length - 1));
    refused(file, file, "cut short", "download it again");
  }

  @Test
  void refusesAMissingTensor() throws IOException {
    Path folder = odd();
    ModelFolder.rewrite(folder, t -> ModelFolder.take(t, "h.1.mlp.c_fc.bias"));
    refused(folder, ModelFolder.weights(folder), "h.1.mlp.c_fc.bias", "n_layer 2");
  }

  @Test
  void refusesMoreLayersThanTheConfigHas() throws IOException {
    Path folder = odd();
    ModelFolder.replace(ModelFolder.config(folder), "\"n_layer\": 2", "\"n_layer\": 1");
    refused(folder, ModelFolder.weights(folder), "h.1.ln_1.weight", "n_layer 1");
  }

  @ParameterizedTest
  @CsvSource({
    "h.0.attn.c_attn.weight, 150, 50",
    "h.1.mlp.c_fc.weight, 70, 50",
    "h.1.mlp.c_proj.weight, 50, 70",
    "wte.weight, 50, 37"
  })
  void refusesTransposedMatrices(String name, long rows, long columns) throws IOException {
    Path folder = odd();
    ModelFolder.rewrite(folder, t -> ModelFolder.reshape(t, name, List.of(rows, columns)));
    refused(folder, name, "looks like [out, in]", rows, columns);
  }

  @ParameterizedTest
  @CsvSource({
    "wte.weight, 38, vocab_size 37",
    "wte.weight, 36, vocab_size 37",
    "wpe.weight, 12, n_positions 11"
  })
  void refusesTablesThatTheConfigContradicts(String name, long rows, String config)
      throws IOException {
    Path folder = odd();
    ModelFolder.rewrite(folder, t -> ModelFolder.reshape(t, name, List.of(rows, 50L)));
    refused(folder, ModelFolder.weights(folder), name + " has " + rows + " rows", config);
  }

  @Test
  void refusesOtherShapes() throws IOException {
    Path folder = odd();
    ModelFolder.rewrite(folder, t -> ModelFolder.reshape(t, "ln_f.bias", List.of(1L, 50L)));
    refused(folder, "ln_f.bias is [1, 50]", "[50]");
    Path head =
        ModelFolder.random(
            temporary.resolve("head"),
            ModelFolder.ODD,
            new RandomCheckpoint.Layout(DType.F32, true, false, false));
    ModelFolder.rewrite(head, t -> ModelFolder.reshape(t, "lm_head.weight", List.of(36L, 50L)));
    refused(head, "lm_head.weight is [36, 50]", "[37, 50]");
  }

  @Test
  void toleratesWhatItDoesNotNeed() throws IOException {
    Path folder = odd();
    ModelFolder.rewrite(
        folder,
        t ->
            t.put(
                new SafetensorsWriter.Entry("score.weight", DType.F32, List.of(3L)), new byte[12]));
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertEquals(List.of("score.weight"), checkpoint.ignored());
      assertFalse(checkpoint.has("score.weight"));
      assertThrows(IllegalArgumentException.class, () -> checkpoint.tensor("score.weight"));
    }
  }

  @Test
  void otherTypesMatterOnlyWhereTheyAreNeeded() throws IOException {
    Path folder =
        ModelFolder.random(
            temporary.resolve("m"),
            ModelFolder.ODD,
            new RandomCheckpoint.Layout(DType.F16, false, false, true));
    byte[] sound = Files.readAllBytes(ModelFolder.weights(folder));
    String mask = "\"h.0.attn.bias\":{\"dtype\":\"F16\"";
    patch(folder, sound, mask, mask.replace("F16", "I16"));
    Checkpoint.open(folder).close();
    patch(folder, sound, mask, mask.replace("F16", "X99"));
    Checkpoint.open(folder).close();
    String weight = "\"h.0.attn.c_attn.bias\":{\"dtype\":\"F16\"";
    patch(folder, sound, weight, weight.replace("F16", "I16"));
    refused(folder, ModelFolder.weights(folder), "h.0.attn.c_attn.bias", "I16", "BF16");
    patch(folder, sound, weight, weight.replace("F16", "X99"));
    refused(folder, "h.0.attn.c_attn.bias is stored as X99");
  }

  /** Latin-1 maps bytes to characters one to one. */
  private static void patch(Path folder, byte[] sound, String from, String to) throws IOException {
    String text = new String(sound, StandardCharsets.ISO_8859_1);
    assertTrue(text.contains(from));
    Files.write(
        ModelFolder.weights(folder), text.replace(from, to).getBytes(StandardCharsets.ISO_8859_1));
  }

  @Test
  void closedMeansClosed() throws IOException {
    Checkpoint checkpoint = Checkpoint.open(odd());
    StoredTensor tensor = checkpoint.tensor("ln_f.bias");
    checkpoint.close();
    checkpoint.close();
    assertThrows(IllegalStateException.class, () -> floats(tensor));
    assertThrows(IllegalStateException.class, checkpoint::sha256);
  }

  @Test
  void opensMoreThanTheHeapHolds() throws IOException {
    Path folder = Files.createDirectory(temporary.resolve("xl"));
    Gpt2Config xl = RandomCheckpoint.Size.GPT2_XL.config();
    Files.writeString(ModelFolder.config(folder), ConfigWriter.text(xl, DType.F32, true));
    List<String> rows = new ArrayList<>();
    long at = 0;
    for (Map.Entry<String, List<Long>> tensor : Gpt2Layout.shapes(xl, false).entrySet()) {
      long end = at + 4 * tensor.getValue().stream().reduce(1L, (a, b) -> a * b);
      rows.add(
          "\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%d,%d]}"
              .formatted(tensor.getKey(), tensor.getValue(), at, end));
      at = end;
    }
    Path file = ModelFolder.raw(ModelFolder.weights(folder), "{" + String.join(",", rows) + "}", 0);
    try (RandomAccessFile sparse = new RandomAccessFile(file.toFile(), "rw")) {
      sparse.setLength(sparse.length() + at); // a hole: takes no room
    }
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertEquals(1_557_611_200, checkpoint.parameters());
      assertTrue(checkpoint.fileBytes() > Runtime.getRuntime().maxMemory());
      StoredTensor last = checkpoint.tensor("ln_f.bias");
      assertTrue(last.data(Arena.ofAuto()).isMapped());
      assertArrayEquals(new float[1600], floats(last));
    }
  }

  @ParameterizedTest
  @EnumSource(RandomCheckpoint.Size.class)
  void shapesAddUpToThePublishedCounts(RandomCheckpoint.Size size) {
    long parameters =
        Gpt2Layout.shapes(size.config(), false).values().stream()
            .mapToLong(shape -> shape.stream().reduce(1L, (a, b) -> a * b))
            .sum();
    long expected =
        switch (size) {
          case TINY -> 1024 * 64 + 128 * 64 + 3 * (12 * 64 * 64 + 13 * 64) + 2 * 64;
          case GPT2 -> 124_439_808;
          case GPT2_MEDIUM -> 354_823_168;
          case GPT2_LARGE -> 774_030_080;
          case GPT2_XL -> 1_557_611_200;
        };
    assertEquals(expected, parameters);
  }

  @Test
  void pipesAreRefusedWithoutWaiting() throws Exception {
    Path pipe = temporary.resolve("pipe");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    refused(pipe, pipe, "not a regular file");
  }

  @Test
  void aNumberThatOverflowsTheHeaderIsNoAddress() throws IOException {
    byte[] bytes =
        ByteBuffer.allocate(24)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putLong(Long.MAX_VALUE - 4)
            .put((byte) '{')
            .array();
    Path file = Files.write(temporary.resolve("m.safetensors"), bytes);
    refused(file, file, "damaged or in another format");
  }
}
