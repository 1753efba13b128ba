package dev.loupe.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.TinyModel;
import dev.loupe.bench.Work.Storage;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Precision;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Gpt2Config;
import java.nio.file.Path;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The formulas, by hand for the tiny model: L = 3, C = 64, I = 256, V = 1024. */
class WorkTest {
  private static final Gpt2Config TINY = RandomCheckpoint.Size.TINY.config();
  private static final Storage F32 = new Storage(4, 4);

  // 3 (4 64^2 + 2 64 256) = 147456 in blocks, 64 1024 = 65536 in the head,
  // 3 (9 64 + 256) + 2 64 = 2624 in biases and norms; 2 3 64 = 384 a position in the cache
  private static final long WEIGHT_BYTES = (147456 + 65536 + 2624) * 4;

  @Test
  void aStep() {
    Work step = Work.pass(TINY, F32, 5, 1);
    assertEquals(WEIGHT_BYTES + 384 * (6 + 1) * 4, step.bytes());
    assertEquals(147456 + 65536 + 384 * 6, step.multiplyAdds());
  }

  /** 129 tokens take three blocks of 64 of the cache; H = 2. */
  @Test
  void whatIsHeld() {
    assertEquals(WEIGHT_BYTES, Work.weightBytes(TINY, F32));
    assertEquals(384 * 128 * 4, Work.cacheBytes(TINY, F32, 128));
    assertEquals(384 * 192 * 2, Work.cacheBytes(TINY, new Storage(2, 2), 129));
    assertEquals(4 * 2 * 2 * (1 + 2 + 3), Work.mapBytes(TINY, 2, 3));
    assertEquals(0, Work.mapBytes(TINY, 0, 3));
  }

  @Test
  void aPromptReadsWeightsOnceAndComputesEveryRow() {
    Work prompt = Work.pass(TINY, F32, 0, 3);
    assertEquals(WEIGHT_BYTES + 384 * (3 + 3) * 4, prompt.bytes());
    assertEquals(3 * 147456 + 65536 + 384 * (1 + 2 + 3), prompt.multiplyAdds());
    Work later = Work.pass(TINY, F32, 10, 3);
    assertEquals(3 * 147456 + 65536 + 384 * (11 + 12 + 13), later.multiplyAdds());
  }

  @Test
  void theAverageOfSteps() {
    Work steps = Work.step(TINY, F32, 5, 2, 1);
    assertEquals(WEIGHT_BYTES + 384 * (7 + 8) / 2.0 * 4, steps.bytes(), 1e-6);
    assertEquals(147456 + 65536 + 384 * 6.5, steps.multiplyAdds(), 1e-6);
  }

  @Test
  void textsAtOnceShareTheWeights() {
    Work steps = Work.step(TINY, F32, 5, 2, 3);
    assertEquals(WEIGHT_BYTES + 3 * 384 * (7 + 8) / 2.0 * 4, steps.bytes(), 1e-6);
    assertEquals(3 * (147456 + 65536 + 384 * 6.5), steps.multiplyAdds(), 1e-6);
  }

  @Test
  void bytesFollowTheStorage() {
    Work half = Work.pass(TINY, new Storage(2, 2), 5, 1);
    assertEquals((147456 + 65536) * 2 + 2624 * 4 + 384 * 7 * 2, half.bytes());
    assertEquals(new Storage(4, 4), storage("cpu", "f32", Precision.F32));
    assertEquals(new Storage(2, 4), storage("cpu", "bf16", Precision.F32), "as the file has them");
    assertEquals(new Storage(4, 4), storage("cpu", "f64", Precision.F32));
    assertEquals(new Storage(2, 4), storage("cpu", "f32", Precision.F16));
    assertEquals(new Storage(4, 4), storage("cuda", "f16", Precision.F32));
    assertEquals(new Storage(2, 2), storage("cuda", "f32", Precision.BF16));
    assertEquals(new Storage(1.0625, 2), storage("cuda", "f16", Precision.INT8));
  }

  private static Storage storage(String backend, String stored, Precision precision) {
    return Storage.of(
        new ModelInfo("m", Optional.empty(), TINY, stored, backend, "", 0), precision);
  }

  /** Against what a checkpoint holds, tensor by tensor. */
  @Test
  void everyWeightIsCountedOnce(@TempDir Path folder) throws Exception {
    try (Checkpoint checkpoint = Checkpoint.open(TinyModel.in(folder).folder())) {
      long positions = checkpoint.tensor("wpe.weight").elements();
      Work none = Work.pass(checkpoint.config(), F32, 0, 0);
      assertEquals((double) (checkpoint.parameters() - positions), none.bytes() / 4);
    }
  }
}
