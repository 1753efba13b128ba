package dev.loupe.model;

import static dev.loupe.Close.assertClose;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.OnGpu;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.ops.cuda.CudaLimits;
import dev.loupe.ops.cuda.CudaOps;
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

/** The GPU backend against the double reference: random models of every shape that it takes. */
@OnGpu
class CudaModelTest {
  @TempDir Path folder;

  private static Gpt2Config config(
      int heads, int width, int inner, Activation f, boolean scaled, boolean inverse) {
    return new Gpt2Config(3, heads, width, 80, 77, inner, f, 1e-5f, scaled, inverse, 76, 76);
  }

  @ParameterizedTest
  @EnumSource(names = {"GELU_NEW", "RELU2"})
  void activations(Activation f) throws Exception {
    checkActivation(f);
  }

  @ParameterizedTest
  @EnumSource(
      names = {"GELU_NEW", "RELU2"},
      mode = EnumSource.Mode.EXCLUDE)
  @Tag("sweep")
  void otherActivations(Activation f) throws Exception {
    checkActivation(f);
  }

  private void checkActivation(Activation f) throws Exception {
    Gpt2Config config = config(2, 48, 192, f, true, false);
    assumeTrue(CudaLimits.whyNot(config).isEmpty(), "no kernel computes it");
    check(config, Precision.F32, 2e-4, 1e-5);
  }

  @Test
  void oddScales() throws Exception {
    check(config(4, 32, 56, Activation.GELU_NEW, false, true), Precision.F32, 2e-4, 1e-5);
  }

  /** Rounding of weights and activations to 11 bits, or 8 of them, through three layers. */
  @ParameterizedTest
  @EnumSource(names = {"F16", "INT8"})
  void narrowWeights(Precision precision) throws Exception {
    checkNarrow(precision);
  }

  @Test
  @Tag("sweep")
  void shortFractions() throws Exception {
    checkNarrow(Precision.BF16);
  }

  private void checkNarrow(Precision precision) throws Exception {
    boolean f16 = precision == Precision.F16;
    check(
        config(4, 160, 320, Activation.GELU_NEW, true, false),
        precision,
        f16 ? 2e-2 : 2e-1,
        f16 ? 2e-3 : 2e-2);
  }

  private void check(Gpt2Config config, Precision precision, double logits, double probabilities)
      throws Exception {
    RandomCheckpoint.write(
        config, 5, folder, new RandomCheckpoint.Layout(DType.F32, true, true, true), Progress.NONE);
    int[] ids = new Random(6).ints(67, 0, config.vocabSize()).toArray();
    try (Checkpoint checkpoint = Checkpoint.open(folder);
        CudaOps ops = new CudaOps(0, precision, Gemm.AUTO);
        Transformer model = new Transformer(checkpoint, ops)) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
      double[] expected = Arrays.stream(reference.logits).flatMapToDouble(Arrays::stream).toArray();
      for (int[] passes :
          new int[][] {Forward.whole(67), Forward.prefillAndDecode(67), {1, 2, 31, 33}}) {
        Forward forward = new Forward(model, ids, passes, true);
        float[] actual = new float[expected.length];
        for (int r = 0; r < ids.length; r++) {
          System.arraycopy(
              forward.logits[r], 0, actual, r * config.vocabSize(), config.vocabSize());
        }
        assertClose("logits", expected, actual, logits);
        for (int l = 0; l < config.nLayer(); l++) {
          for (int h = 0; h < config.nHead(); h++) {
            for (int q = 0; q < ids.length; q++) {
              for (int k = 0; k <= q; k++) {
                assertEquals(
                    reference.attention[l][h][q][k], forward.attention[l][h][q][k], probabilities);
              }
            }
          }
        }
      }
    }
  }
}
