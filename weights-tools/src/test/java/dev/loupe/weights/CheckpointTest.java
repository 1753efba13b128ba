package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
  static final Path DEMO = Path.of("..", "test-data", "shakespeare");

  @TempDir Path temporary;

  private static float[] floats(StoredTensor tensor) {
    float[] values = new float[(int) tensor.elements()];
    tensor.read(0, values, 0, values.length);
    return values;
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
    Path folder = ModelFolder.odd(temporary);
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
    try (Checkpoint checkpoint = Checkpoint.open(ModelFolder.odd(temporary))) {
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
    Path folder = ModelFolder.odd(temporary);
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
  void toleratesWhatItDoesNotNeed() throws IOException {
    Path folder = ModelFolder.odd(temporary);
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
  void closedMeansClosed() throws IOException {
    Checkpoint checkpoint = Checkpoint.open(ModelFolder.odd(temporary));
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
}
