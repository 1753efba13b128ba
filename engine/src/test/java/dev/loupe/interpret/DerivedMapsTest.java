package dev.loupe.interpret;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.model.Golden;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.weights.Checkpoint;
import java.util.Arrays;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class DerivedMapsTest {
  @Test
  void derivedMapsAreThoseOfTheTextbook() throws Exception {
    int[] ids = Arrays.copyOf(Golden.of("repeat").ids(), 13);
    try (Loupe loupe =
            Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
        Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        ActivationCache cache = loupe.cache(ReadRequest.of(Prompt.ids(ids)))) {
      ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, ids);
      int layers = cache.layers();
      int heads = cache.heads();
      int c = checkpoint.config().nEmbd();
      double[][] rollout = new double[ids.length][ids.length];
      for (int i = 0; i < ids.length; i++) {
        rollout[i][i] = 1;
      }
      for (int layer = 0; layer < layers; layer++) {
        float[] wO = new float[c * c];
        checkpoint.tensor("h." + layer + ".attn.c_proj.weight").read(0, wO, 0, wO.length);
        double[][] next = new double[ids.length][ids.length];
        double[][][] byValue = new double[heads][][];
        for (int head = 0; head < heads; head++) {
          byValue[head] = byValue(reference, layer, head, wO, c, c / heads);
          for (int i = 0; i < ids.length; i++) {
            for (int k = 0; k <= i; k++) {
              double part =
                  reference.attention[layer][head][i][k] / 2 / heads + (i == k ? 0.5 / heads : 0);
              for (int j = 0; j <= k; j++) {
                next[i][j] += part * rollout[k][j];
              }
            }
          }
        }
        rollout = next;
        double[][] expected = rollout;
        int[] all = IntStream.range(0, heads).toArray();
        int[] seen = {0};
        AttentionRowConsumer same =
            (head, query, row) -> {
              seen[0]++;
              for (int key = 0; key <= query; key++) {
                assertEquals(byValue[head][query][key], row[key], 1e-4, head + " value-weighted");
              }
            };
        cache.rebuild(MapKind.VALUE_WEIGHTED, layer, all, 3, 13, same);
        cache.rebuild(
            MapKind.ROLLOUT,
            layer,
            new int[] {heads - 1},
            3,
            13,
            (_, query, row) -> {
              seen[0]++;
              for (int key = 0; key <= query; key++) {
                assertEquals(expected[query][key], row[key], 1e-5, "rollout");
              }
            });
        assertEquals(10 * heads + 10, seen[0]);
      }
    }
  }

  /** |P[i, j] v[j] W_O| over its sum over j, in double. */
  private static double[][] byValue(
      ReferenceGpt2 reference, int layer, int head, float[] wO, int c, int d) {
    double[][] attention = reference.attention[layer][head];
    double[][] out = new double[attention.length][attention.length];
    for (int i = 0; i < out.length; i++) {
      double sum = 0;
      for (int j = 0; j <= i; j++) {
        double square = 0;
        for (int k = 0; k < c; k++) {
          double written = 0;
          for (int n = 0; n < d; n++) {
            written += reference.values[layer][j][head * d + n] * wO[(head * d + n) * c + k];
          }
          square += written * written;
        }
        out[i][j] = attention[i][j] * Math.sqrt(square);
        sum += out[i][j];
      }
      for (int j = 0; j <= i; j++) {
        out[i][j] /= sum;
      }
    }
    return out;
  }
}
