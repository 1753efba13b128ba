package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.ConfigJson;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class RandomCheckpointTest {
  @TempDir Path temporary;

  private Path tiny(String name, long seed) throws IOException {
    Path folder = temporary.resolve(name);
    RandomCheckpoint.write(RandomCheckpoint.Size.TINY, seed, folder, Progress.NONE);
    return folder;
  }

  private static String sha256(Path folder) throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      return checkpoint.sha256();
    }
  }

  @Test
  void aSeedIsAModelForEver() throws IOException {
    assertEquals(
        "7e93d0a6b8b3885de65faf22e06691b8bbd71e05f9b9c8c7fbf3ad5aa82a7141", sha256(tiny("a", 0)));
    assertEquals(sha256(tiny("b", 7)), sha256(tiny("c", 7)));
    assertNotEquals(sha256(temporary.resolve("a")), sha256(temporary.resolve("b")));
    assertEquals(
        RandomCheckpoint.Size.TINY.config(),
        ConfigJson.read(temporary.resolve("a").resolve("config.json")).config());
  }

  /** Standard errors are under 1% of the deviations for these sizes; the bounds allow 5 of them. */
  @ParameterizedTest
  @CsvSource({
    "wte.weight, 0, 0.02",
    "wpe.weight, 0, 0.01",
    "h.1.attn.c_attn.weight, 0, 0.02",
    "h.0.attn.c_proj.weight, 0, 0.0081650", // 0.02 / sqrt(2 L), L = 3
    "h.1.mlp.c_proj.weight, 0, 0.0081650",
    "h.1.mlp.c_fc.bias, 0, 0.02",
    "h.0.ln_1.weight, 1, 0.1",
    "ln_f.weight, 1, 0.1",
    "h.1.ln_2.bias, 0, 0.02"
  })
  void drawsAsGpt2DoesBeforeTraining(String name, double mean, double deviation)
      throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(tiny("a", 3))) {
      StoredTensor tensor = checkpoint.tensor(name);
      int n = (int) tensor.elements();
      float[] x = new float[n];
      tensor.read(0, x, 0, n);
      double sum = 0;
      double squares = 0;
      for (float value : x) {
        sum += value;
        squares += (value - mean) * (value - mean);
      }
      double standardError = deviation / Math.sqrt(n);
      assertEquals(mean, sum / n, 5 * standardError);
      assertEquals(deviation, Math.sqrt(squares / n), 5 * standardError);
    }
  }

  @Test
  void noTwoTensorsShareValues() throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(tiny("a", 3))) {
      Set<Float> starts = new HashSet<>();
      for (StoredTensor tensor : checkpoint.tensors()) {
        float[] x = new float[2];
        tensor.read(0, x, 0, 2);
        assertNotEquals(x[0], x[1]);
        assertTrue(starts.add(x[0]), tensor.name());
      }
    }
  }

  /** Tensors are made in chunks of 2^16 elements on several threads, written 2^20 at a time. */
  @Test
  void chunksFollowOnEachOther() throws IOException {
    Gpt2Config wide =
        new Gpt2Config(1, 2, 10, 4, 140_000, 16, Activation.RELU, 1e-5f, true, false, -1, -1);
    Path a = ModelFolder.random(temporary.resolve("a"), wide, RandomCheckpoint.Layout.PLAIN);
    Path b = ModelFolder.random(temporary.resolve("b"), wide, RandomCheckpoint.Layout.PLAIN);
    assertEquals(sha256(a), sha256(b));
    try (Checkpoint checkpoint = Checkpoint.open(a)) {
      StoredTensor wte = checkpoint.tensor("wte.weight");
      Set<List<Float>> starts = new HashSet<>();
      for (long first : new long[] {0, 1 << 16, 2 << 16, 15 << 16, 1 << 20, wte.elements() - 3}) {
        float[] x = new float[3];
        wte.read(first, x, 0, 3);
        assertTrue(starts.add(List.of(x[0], x[1], x[2])), "at " + first);
      }
    }
  }

  @Test
  void reportsProgressToTheEnd() throws IOException {
    List<Long> done = new ArrayList<>();
    RandomCheckpoint.write(
        RandomCheckpoint.Size.TINY,
        1,
        temporary.resolve("a"),
        (now, total) -> {
          assertTrue(now <= total && (done.isEmpty() || now > done.getLast()));
          done.add(now);
          assertTrue(total > 0);
        });
    try (Checkpoint checkpoint = Checkpoint.open(temporary.resolve("a"))) {
      assertEquals(4 * checkpoint.parameters(), done.getLast());
    }
  }

  @Test
  void neverTouchesAModelThatIsThere() throws IOException {
    Path folder = tiny("a", 1);
    String before = sha256(folder);
    Refusal.of(() -> tiny("a", 2), folder, "already holds a model (config.json)");
    assertEquals(before, sha256(folder));
    Path shards = Files.createDirectory(temporary.resolve("b"));
    Files.writeString(ModelFolder.index(shards), "{}");
    Refusal.of(() -> tiny("b", 2), shards, "model.safetensors.index.json");
    Path file = Files.writeString(temporary.resolve("c"), "x");
    Refusal.of(() -> tiny("c", 2), file, "is a file");
    Refusal.of(() -> tiny("c/d", 2), file.resolve("d"), "can't be created");
  }

  @Test
  void fillsAFolderThatHoldsSomethingElse() throws IOException {
    Path folder = Files.createDirectory(temporary.resolve("a"));
    Files.writeString(folder.resolve("tokenizer.json"), "{}");
    tiny("a", 1);
    Checkpoint.open(folder).close();
    assertTrue(Files.exists(folder.resolve("tokenizer.json")));
  }

  @Test
  void anEndOnTheWayLeavesNothing() {
    Path folder = temporary.resolve("a");
    assertThrows(
        IllegalStateException.class,
        () ->
            RandomCheckpoint.write(
                RandomCheckpoint.Size.TINY,
                1,
                folder,
                (done, total) -> {
                  if (done > total / 2) {
                    throw new IllegalStateException("stop");
                  }
                }));
    assertFalse(Files.exists(folder));
  }

  @Test
  void theHeadHasValuesOfItsOwnButTheRestStays() throws IOException {
    Path tied = tiny("a", 5);
    Path separate = temporary.resolve("b");
    RandomCheckpoint.write(
        RandomCheckpoint.Size.TINY.config(),
        5,
        separate,
        new RandomCheckpoint.Layout(DType.F32, true, false, false),
        Progress.NONE);
    try (Checkpoint a = Checkpoint.open(tied);
        Checkpoint b = Checkpoint.open(separate)) {
      for (StoredTensor tensor : a.tensors()) {
        assertEquals(
            -1, tensor.data(Arena.ofAuto()).mismatch(b.tensor(tensor.name()).data(Arena.ofAuto())));
      }
      assertNotEquals(
          -1,
          b.tensor("wte.weight")
              .data(Arena.ofAuto())
              .mismatch(b.tensor("lm_head.weight").data(Arena.ofAuto())));
    }
  }

  @ParameterizedTest
  @EnumSource
  void sizesHaveTheirNames(RandomCheckpoint.Size size) {
    assertSame(size, RandomCheckpoint.Size.named(size.label()));
    assertEquals(size == RandomCheckpoint.Size.TINY ? 32 : 64, size.config().headDim());
  }

  @Test
  void unknownSizesListTheKnown() {
    IllegalArgumentException e =
        assertThrows(IllegalArgumentException.class, () -> RandomCheckpoint.Size.named("gpt3"));
    assertTrue(String.valueOf(e.getMessage()).contains("\"gpt3\"; there are tiny, gpt2, gpt2-m"));
  }
}
