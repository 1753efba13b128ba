package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WeightsComparisonTest {
  @TempDir Path temporary;

  private Path model(String name, RandomCheckpoint.Layout layout) throws IOException {
    return ModelFolder.random(temporary.resolve(name), ModelFolder.ODD, layout);
  }

  private static WeightsComparison of(Path a, Path b) throws IOException {
    long[] heard = new long[2];
    try (Checkpoint ofA = Checkpoint.open(a);
        Checkpoint ofB = Checkpoint.open(b)) {
      WeightsComparison comparison =
          WeightsComparison.of(
              ofA,
              ofB,
              (done, total) -> {
                heard[0] = done;
                heard[1] = total;
              });
      assertEquals(heard[0], heard[1]);
      assertEquals(comparison.tensors().isEmpty(), heard[1] == 0);
      return comparison;
    }
  }

  private static WeightsComparison.Difference tensor(WeightsComparison comparison, String name) {
    return comparison.tensors().stream()
        .filter(t -> t.name().equals(name))
        .findFirst()
        .orElseThrow();
  }

  /** Sets elements of a tensor of the model. */
  private static void set(Path folder, String tensor, Map<Integer, Float> elements)
      throws IOException {
    ModelFolder.rewrite(
        folder,
        tensors ->
            tensors.forEach(
                (entry, data) -> {
                  if (entry.name().equals(tensor)) {
                    ByteBuffer bytes = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
                    elements.forEach((at, value) -> bytes.putFloat(4 * at, value));
                  }
                }));
  }

  @Test
  void oneModelInTwoTypes() throws IOException {
    Path bf16 = model("a", new RandomCheckpoint.Layout(DType.BF16, false, true, true));
    Path f32 = temporary.resolve("b");
    try (Checkpoint checkpoint = Checkpoint.open(bf16)) {
      Gpt2Safetensors.write(
          checkpoint, java.util.Optional.of(DType.F32), java.util.Map.of(), f32, Progress.NONE);
    }
    WeightsComparison comparison = of(bf16, f32);
    assertTrue(comparison.within(0));
    assertEquals(28, comparison.tensors().size());
    assertEquals("BF16, F32", tensor(comparison, "wpe.weight").storedAs());
    assertTrue(comparison.tensors().stream().allMatch(t -> t.at() == -1 && t.largest() == 0));
  }

  @Test
  void theLargestDifferenceAndWhereItIs() throws IOException {
    Path a = model("a", RandomCheckpoint.Layout.PLAIN);
    Path b = model("b", RandomCheckpoint.Layout.PLAIN);
    set(a, "h.1.mlp.c_fc.weight", Map.of(7, 1f, 3000, -2f, 3499, 0.5f));
    set(b, "h.1.mlp.c_fc.weight", Map.of(7, 1.25f, 3000, -2.75f, 3499, 0.25f));
    WeightsComparison comparison = of(a, b);
    WeightsComparison.Difference difference = tensor(comparison, "h.1.mlp.c_fc.weight");
    assertEquals(
        new WeightsComparison.Difference(
            "h.1.mlp.c_fc.weight", List.of(50L, 70L), "F32", 0.75, 3000),
        difference);
    assertEquals(1, comparison.tensors().stream().filter(t -> t.at() >= 0).count());
    assertFalse(comparison.within(0));
    assertFalse(comparison.within(0.749));
    assertTrue(comparison.within(0.75));
  }

  @Test
  void whatIsNoNumber() throws IOException {
    Path a = model("a", RandomCheckpoint.Layout.PLAIN);
    Path b = model("b", RandomCheckpoint.Layout.PLAIN);
    float infinite = Float.POSITIVE_INFINITY;
    set(a, "ln_f.bias", Map.of(0, Float.NaN, 1, infinite));
    set(b, "ln_f.bias", Map.of(0, Float.NaN, 1, infinite));
    assertTrue(of(a, b).within(0));
    set(b, "ln_f.bias", Map.of(0, 1f));
    assertFalse(of(a, b).within(1e30), "NaN is not near anything");
    set(a, "ln_f.bias", Map.of(0, 0f, 1, Float.NaN));
    set(b, "ln_f.bias", Map.of(0, 1f, 1, 0f));
    assertFalse(of(a, b).within(2), "nor after a difference that would pass");
    assertEquals(1, tensor(of(a, b), "ln_f.bias").at());
    set(a, "ln_f.bias", Map.of(0, Float.NaN, 1, infinite));
    set(b, "ln_f.bias", Map.of(0, Float.NaN, 1, -infinite));
    assertFalse(of(a, b).within(1e30));
    set(a, "ln_f.bias", Map.of(0, 0f, 1, 0f));
    set(b, "ln_f.bias", Map.of(0, -0f, 1, 0f));
    assertFalse(of(a, b).within(0), "-0 has other bits");
    assertTrue(of(a, b).within(1e-30));
  }

  @Test
  void aHeadThatOneOfThemTies() throws IOException {
    Path tied = model("a", RandomCheckpoint.Layout.PLAIN);
    Path separate = model("b", new RandomCheckpoint.Layout(DType.F32, true, false, false));
    WeightsComparison other = of(tied, separate);
    assertFalse(other.within(0));
    assertTrue(tensor(other, "lm_head.weight").at() >= 0);
    ModelFolder.rewrite(
        separate,
        tensors -> {
          byte[] wte = new byte[0];
          for (Map.Entry<SafetensorsWriter.Entry, byte[]> t : tensors.entrySet()) {
            wte = t.getKey().name().equals("wte.weight") ? t.getValue() : wte;
          }
          byte[] copy = wte;
          tensors.replaceAll((e, bytes) -> e.name().equals("lm_head.weight") ? copy : bytes);
        });
    assertTrue(of(tied, separate).within(0));
    assertTrue(of(separate, tied).within(0));
  }

  @Test
  void configsThatComputeOtherwise() throws IOException {
    Path a = model("a", RandomCheckpoint.Layout.PLAIN);
    Path b = model("b", RandomCheckpoint.Layout.PLAIN);
    ModelFolder.replace(ModelFolder.config(b), "\"gelu\"", "\"gelu_new\"");
    WeightsComparison comparison = of(a, b);
    assertEquals(List.of("activation_function gelu and gelu_new"), comparison.settings());
    assertFalse(comparison.within(1));
    assertFalse(comparison.tensors().isEmpty());
    Path demo = Path.of("..", "test-data", "shakespeare");
    WeightsComparison another = of(a, demo);
    assertTrue(another.tensors().isEmpty());
    assertTrue(another.settings().contains("n_layer 2 and 6"), another.settings().toString());
    assertFalse(another.within(1));
  }
}
