package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.AttentionRows;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.tensor.DType;
import org.junit.jupiter.api.Test;

/** Maps, scores and statistics of whole runs on the demo model. */
class LoupeAttentionTest extends LoupeFixture {
  @Test
  void mapsOnOrOffChangeNoBit() {
    GenerateRequest plain =
        GenerateRequest.text("ROMEO:").tokens(40).sampling(Sampling.seeded(4)).logprobs(3);
    GenerateRequest mapped =
        GenerateRequest.text("ROMEO:")
            .tokens(40)
            .sampling(Sampling.seeded(4))
            .logprobs(3)
            .attention(AttentionSelection.all().withScores());
    Generation without = one(plain);
    Generation with = one(mapped);
    assertEquals(without.tokens(), with.tokens(), "ids, logprobs, ranks and alternatives");
    assertTrue(without.maps().isEmpty());
    assertThrows(IllegalStateException.class, without::attention);
  }

  @Test
  void mapsOfARunEqualThoseOfReadingItsText() {
    Generation run = loupe.generate("ROMEO:", Sampling.seeded(4), 30, AttentionSelection.all());
    Generation read =
        one(GenerateRequest.ids(ids(run)).tokens(0).attention(AttentionSelection.all()));
    for (int l = 0; l < 6; l++) {
      for (int h = 0; h < 3; h++) {
        for (int q = 0; q < run.tokens().size(); q++) {
          assertArrayEquals(read.attention().row(l, h, q), run.attention().row(l, h, q));
        }
      }
    }
  }

  @Test
  void selectionsKeepTheirNumbers() {
    Generation all = loupe.read("But soft, what light", AttentionSelection.all());
    Generation some =
        loupe.read("But soft, what light", AttentionSelection.all().layers(4, 1).heads(2));
    AttentionMaps maps = some.attention();
    assertArrayEquals(new int[] {1, 4}, maps.layers());
    assertArrayEquals(new int[] {2}, maps.heads());
    for (int q = 0; q < maps.tokens(); q++) {
      assertArrayEquals(all.attention().row(4, 2, q), maps.row(4, 2, q));
    }
    assertThrows(IllegalArgumentException.class, () -> maps.row(0, 2, 0));
    assertThrows(IllegalArgumentException.class, () -> maps.row(1, 0, 0));
    assertThrows(IllegalArgumentException.class, () -> maps.row(1, 2, maps.tokens()));
  }

  @Test
  void scoresAreWhatTheSoftmaxSaw() {
    Generation run = loupe.read("But soft, what", AttentionSelection.all().withScores());
    float[] s = run.scores().orElseThrow().row(3, 1, 4);
    float[] p = run.attention().row(3, 1, 4);
    double sum = 0;
    for (float score : s) {
      sum += Math.exp(score);
    }
    for (int k = 0; k < s.length; k++) {
      assertEquals(Math.exp(s[k]) / sum, p[k], 1e-6);
    }
  }

  @Test
  void statisticsAreThoseOfTheMaps() {
    GenerateRequest request = GenerateRequest.text("To be, or not to be").tokens(20);
    AttentionSelection selection = AttentionSelection.all().layers(1, 4);
    Generation both = one(request.attention(selection.withStatistics(5)));
    AttentionRows.close(both.attention(), both.statistics().orElseThrow(), 1e-6);
    Generation only = one(request.attention(selection.statisticsOnly(16)));
    assertTrue(only.maps().isEmpty());
    assertThrows(IllegalStateException.class, only::attention);
    AttentionRows.close(both.attention(), only.statistics().orElseThrow(), 1e-6);
    assertThrows(IllegalArgumentException.class, () -> selection.withStatistics(17));
    assertThrows(IllegalArgumentException.class, () -> selection.statisticsOnly(0));
  }

  @Test
  void mapsOfHalvesAreTheRoundedOnes() {
    GenerateRequest request = GenerateRequest.text("To be, or not to be").tokens(20);
    AttentionMaps whole = one(request.attention(AttentionSelection.all())).attention();
    AttentionMaps halves =
        one(request.attention(AttentionSelection.all().dtype(DType.F16))).attention();
    for (int query = 0; query < whole.tokens(); query++) {
      float[] expected = whole.row(3, 1, query);
      for (int key = 0; key <= query; key++) {
        expected[key] = Float.float16ToFloat(Float.floatToFloat16(expected[key]));
      }
      assertArrayEquals(expected, halves.row(3, 1, query));
    }
    assertThrows(IllegalArgumentException.class, () -> AttentionSelection.all().dtype(DType.BF16));
  }
}
