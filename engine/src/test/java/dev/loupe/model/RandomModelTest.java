package dev.loupe.model;

import static dev.loupe.Close.assertClose;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Random models of every shape that a config can ask for, against the double reference. */
class RandomModelTest {
  @TempDir Path folder;

  private static Gpt2Config config(
      int heads, int width, int inner, Activation f, boolean scaled, boolean inverse) {
    return new Gpt2Config(3, heads, width, 80, 77, inner, f, 1e-5f, scaled, inverse, 76, 76);
  }

  @ParameterizedTest
  @EnumSource(Activation.class)
  void activations(Activation f) throws Exception {
    check(config(2, 48, 192, f, true, false), RandomCheckpoint.Layout.PLAIN);
  }

  @Test
  void headSizeOfXl() throws Exception {
    check(config(5, 125, 500, Activation.GELU_NEW, true, false), RandomCheckpoint.Layout.PLAIN);
  }

  @Test
  void widthsThatFillNoVector() throws Exception {
    check(config(2, 14, 13, Activation.GELU_NEW, true, false), RandomCheckpoint.Layout.PLAIN);
  }

  @Test
  void oddScales() throws Exception {
    check(config(4, 32, 50, Activation.GELU_NEW, false, true), RandomCheckpoint.Layout.PLAIN);
  }

  @ParameterizedTest
  @EnumSource(DType.class)
  void storedTypes(DType dtype) throws Exception {
    check(
        config(2, 40, 160, Activation.GELU_NEW, true, false),
        new RandomCheckpoint.Layout(dtype, true, true, true));
  }

  private void check(Gpt2Config config, RandomCheckpoint.Layout layout) throws Exception {
    RandomCheckpoint.write(config, 5, folder, layout, Progress.NONE);
    int[] ids = new Random(6).ints(67, 0, config.vocabSize()).toArray();
    try (Checkpoint checkpoint = Checkpoint.open(folder);
        CpuOps ops = new CpuOps(2);
        Transformer model = new Transformer(checkpoint, ops)) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
      double[] expected = Arrays.stream(reference.logits).flatMapToDouble(Arrays::stream).toArray();
      Forward whole = new Forward(model, ids, Forward.whole(ids.length), true);
      Forward single = new Forward(model, ids, Forward.single(ids.length), true);
      assertClose("logits", expected, flat(whole.logits), 2e-4);
      assertArrayEquals(flat(whole.logits), flat(single.logits), "one pass and token by token");
      for (int l = 0; l < config.nLayer(); l++) {
        for (int h = 0; h < config.nHead(); h++) {
          for (int q = 0; q < ids.length; q++) {
            double[] p = Arrays.copyOf(reference.attention[l][h][q], q + 1);
            for (int k = 0; k <= q; k++) {
              assertEquals(p[k], whole.attention[l][h][q][k], 1e-5);
            }
            assertArrayEquals(whole.attention[l][h][q], single.attention[l][h][q]);
          }
        }
      }
    }
  }

  private static float[] flat(float[][] rows) {
    float[] flat = new float[rows.length * rows[0].length];
    for (int r = 0; r < rows.length; r++) {
      System.arraycopy(rows[r], 0, flat, r * rows[0].length, rows[0].length);
    }
    return flat;
  }

  @Test
  void bitsDoNotDependOnThreads() throws Exception {
    RandomCheckpoint.write(
        config(4, 64, 256, Activation.GELU_NEW, true, false),
        5,
        folder,
        RandomCheckpoint.Layout.PLAIN,
        Progress.NONE);
    int[] ids = new Random(7).ints(50, 0, 77).toArray();
    float[][] results = new float[3][];
    int[] threads = {1, 2, 4};
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      for (int i = 0; i < threads.length; i++) {
        try (CpuOps ops = new CpuOps(threads[i]);
            Transformer model = new Transformer(checkpoint, ops)) {
          results[i] = flat(new Forward(model, ids, new int[] {40, 4, 3, 2, 1}, false).logits);
        }
      }
    }
    assertArrayEquals(results[0], results[1]);
    assertArrayEquals(results[0], results[2]);
  }

  /** GPT-2's own size: sums of 768 and 3,072 products through twelve layers. */
  @Tag("sweep")
  @Test
  void sizeOf124M() throws Exception {
    RandomCheckpoint.write(RandomCheckpoint.Size.GPT2, 1, folder, Progress.NONE);
    int[] ids = {15496, 11, 314, 1101, 257, 3303, 2746, 50256};
    try (Checkpoint checkpoint = Checkpoint.open(folder);
        CpuOps ops = new CpuOps(2);
        Transformer model = new Transformer(checkpoint, ops)) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
      Forward actual = new Forward(model, ids, new int[] {6, 1, 1}, true);
      double[] expected = Arrays.stream(reference.logits).flatMapToDouble(Arrays::stream).toArray();
      assertClose("124M logits", expected, flat(actual.logits), 2e-4);
      for (int l = 0; l < 12; l++) {
        for (int h = 0; h < 12; h++) {
          for (int q = 0; q < ids.length; q++) {
            for (int k = 0; k <= q; k++) {
              assertEquals(reference.attention[l][h][q][k], actual.attention[l][h][q][k], 1e-5);
            }
          }
        }
      }
    }
  }

  @Test
  void refusesWhatDoesNotFit() throws Exception {
    Gpt2Config config = config(2, 16, 64, Activation.GELU_NEW, true, false);
    RandomCheckpoint.write(config, 5, folder, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    try (Checkpoint checkpoint = Checkpoint.open(folder);
        CpuOps ops = new CpuOps(1);
        Transformer model = new Transformer(checkpoint, ops);
        TensorArena arena = ops.arena()) {
      KvCache kv = new KvCache(arena, 3, 2, 8, 1, 128);
      Activations a = Activations.allocate(arena, config, 81);
      String id =
          assertThrows(
                  IllegalArgumentException.class,
                  () -> forward(model, Batch.sequence(0, 0, 77), kv, a.rows(1)))
              .toString();
      assertTrue(id.contains("77") && id.contains("0..76"), id);
      assertThrows(
          IllegalArgumentException.class,
          () -> forward(model, Batch.sequence(0, 0, -1), kv, a.rows(1)));
      String position =
          assertThrows(
                  IllegalArgumentException.class,
                  () -> forward(model, Batch.sequence(0, 0, new int[81]), kv, a))
              .toString();
      assertTrue(position.contains("80"), position);
      assertEquals(0, kv.length(0), "a refused batch leaves the cache as it was");
    }
  }

  private static void forward(Transformer model, Batch batch, KvCache kv, Activations a) {
    try (Pass pass = model.begin(batch, kv, Mask.CAUSAL)) {
      model.forward(pass, a, AttentionHook.NONE);
    }
  }
}
