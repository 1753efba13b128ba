package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class InspectionTest {
  private static final Path DEMO = Path.of("..", "test-data", "shakespeare");

  @TempDir Path temporary;

  private static Inspection of(Path folder) throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      return Inspection.of(checkpoint);
    }
  }

  private static void assertContains(String text, String... parts) {
    for (String part : parts) {
      assertTrue(text.contains(part), () -> "no <" + part + "> in\n" + text);
    }
  }

  @Test
  void summarisesTheDemoModel() throws IOException {
    String text = of(DEMO).text(false);
    assertContains(
        text,
        "parameters   2,915,328",
        "5,837,768 bytes",
        "stored as    F16",
        "tied to wte.weight",
        "n_layer 6   n_head 3   n_embd 192   head size 64   n_inner 768",
        "n_positions 256   vocab_size 1024   bos 1023   eos 1023 (config.json)",
        "gelu_new   layer_norm_epsilon 1.0E-5");
    assertTrue(
        text.lines()
            .anyMatch(
                l -> l.matches(" *h\\.\\*\\.attn\\.c_attn\\.weight +F16 +\\[192, 576] +x6 .*")),
        text);
    assertEquals(1, text.lines().filter(l -> l.contains(".attn.c_attn.weight")).count());
    assertTrue(text.lines().allMatch(l -> l.length() <= 80 && !l.endsWith(" ")), text);
  }

  @Test
  void listsEveryTensorOnRequest() throws IOException {
    String text = of(DEMO).text(true);
    assertEquals(6, text.lines().filter(l -> l.contains(".attn.c_attn.weight")).count());
    assertContains(text, "h.5.mlp.c_proj.bias");
    assertFalse(text.contains("h.*"));
  }

  @Test
  void theLargestModelFitsTheTerminal() {
    Gpt2Config xl = RandomCheckpoint.Size.GPT2_XL.config();
    List<Inspection.Tensor> tensors =
        Gpt2Layout.shapes(xl, false).entrySet().stream()
            .map(
                e -> {
                  long n = e.getValue().stream().reduce(1L, (a, b) -> a * b);
                  return new Inspection.Tensor(e.getKey(), "F32", e.getValue(), n, 4 * n);
                })
            .toList();
    Inspection inspection =
        new Inspection(
            Path.of("gpt2-xl"),
            List.of(Path.of("gpt2-xl", "model.safetensors")),
            6_230_500_000L,
            xl,
            tensors,
            List.of(),
            Inspection.Head.TIED,
            "config.json",
            Optional.of("0".repeat(64)));
    assertEquals(1_557_611_200, inspection.parameters());
    for (boolean all : new boolean[] {false, true}) {
      String text = inspection.text(all);
      assertTrue(text.lines().allMatch(l -> l.length() <= 80), text);
    }
    // keys and values: 2 x 48 layers x 1024 tokens x 1600 numbers x 4 bytes
    assertEquals(629_145_600, inspection.kvCacheBytes(1024, Inspection.Precision.F32));
    assertContains(inspection.text(false), "600.0 MiB", "5.8 GiB", "2.9 GiB");
  }

  @Test
  void countsMemoryByPrecision() throws IOException {
    Inspection demo = of(DEMO);
    long vectors =
        demo.tensors().stream()
            .filter(t -> t.shape().size() == 1)
            .mapToLong(Inspection.Tensor::elements)
            .sum();
    assertEquals(4 * 2_915_328, demo.weightBytes(Inspection.Precision.F32));
    assertEquals(
        2 * (2_915_328 - vectors) + 4 * vectors, demo.weightBytes(Inspection.Precision.F16));
    assertEquals(2_915_328 + 3 * vectors, demo.weightBytes(Inspection.Precision.INT8));
  }

  @Test
  void tellsTheHeads() throws IOException {
    Path folder =
        ModelFolder.random(
            temporary.resolve("m"),
            ModelFolder.ODD,
            new RandomCheckpoint.Layout(DType.F32, true, true, true));
    Inspection separate = of(folder);
    assertEquals(Inspection.Head.SEPARATE, separate.head());
    assertContains(
        separate.text(false),
        "lm_head.weight, separate",
        "not used: 4 more",
        "bos none   eos 36",
        "divided by the number of the layer");
    ModelFolder.rewrite(
        folder,
        tensors -> {
          byte[] wte = new byte[0];
          for (Map.Entry<SafetensorsWriter.Entry, byte[]> t : tensors.entrySet()) {
            if (t.getKey().name().equals("transformer.wte.weight")) {
              wte = t.getValue();
            }
          }
          byte[] copy = wte;
          tensors.replaceAll((e, bytes) -> e.name().equals("lm_head.weight") ? copy : bytes);
        });
    Inspection twice = of(folder);
    assertEquals(Inspection.Head.TIED_STORED_TWICE, twice.head());
    assertEquals(separate.parameters() - 37 * 50, twice.parameters());
  }

  @Test
  void mixedTypesAreNotHiddenInOneLine() throws IOException {
    Path folder =
        ModelFolder.random(temporary.resolve("m"), ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
    ModelFolder.rewrite(
        folder,
        tensors -> {
          ModelFolder.take(tensors, "h.1.mlp.c_fc.bias");
          tensors.put(
              new SafetensorsWriter.Entry("h.1.mlp.c_fc.bias", DType.F16, List.of(70L)),
              new byte[140]);
        });
    String text = of(folder).text(false);
    assertContains(text, "h.0.mlp.c_fc.bias", "h.1.mlp.c_fc.bias", "stored as    F16, F32");
  }

  @Test
  void givesProgramsEverything() throws IOException {
    JsonObject json = of(DEMO).json();
    assertEquals(2_915_328, json.get("parameters").getAsLong());
    assertEquals(5_837_768, json.get("file_bytes").getAsLong());
    assertTrue(json.get("tied").getAsBoolean());
    assertEquals(192, json.getAsJsonObject("config").get("n_embd").getAsInt());
    assertEquals(4 + 6 * 12, json.getAsJsonArray("tensors").size());
    JsonObject first = json.getAsJsonArray("tensors").get(0).getAsJsonObject();
    assertEquals("wte.weight", first.get("name").getAsString());
    assertEquals("[1024,192]", first.get("shape").toString());
    assertEquals(393_216, first.get("bytes").getAsLong());
    JsonObject memory = json.getAsJsonObject("memory");
    assertEquals(11_661_312, memory.getAsJsonObject("weights").get("f32").getAsLong());
    assertEquals(2, memory.getAsJsonArray("kv_cache").size());
    assertEquals(
        2 * 6 * 256 * 192 * 2,
        memory.getAsJsonArray("kv_cache").get(1).getAsJsonObject().get("f16").getAsLong());
  }
}
