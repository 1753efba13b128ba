package dev.loupe.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.ModelInfo;
import dev.loupe.Precision;
import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Result;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.weights.RandomCheckpoint;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Reports of made-up measurements. */
class BenchReportTest {
  private static final Machine MACHINE = new Machine("Some CPU", 4, 256, "25", 0.25);
  private static final Ceilings CEILINGS = new Ceilings(20e9, 50e9);

  private static BenchReport report(
      Settings settings, String backend, String device, List<Ceilings> ceilings) {
    ModelInfo model =
        new ModelInfo(
            "some/model",
            Optional.empty(),
            RandomCheckpoint.Size.GPT2_XL.config(),
            "f16",
            backend,
            device,
            5);
    return new BenchReport(
        settings,
        model,
        Precision.F32,
        2,
        new Result(List.of(3, 1, 2), List.of(120.0, 100.0, 80.0)),
        new Work(1e9, 2.5e9),
        ceilings,
        MACHINE);
  }

  private static BenchReport decode() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, Maps.ONE);
    return report(
        settings, "cpu", "cpu, 256-bit vectors, 2 threads", Collections.nCopies(3, CEILINGS));
  }

  private static JsonObject json(BenchReport report) {
    assertEquals(1, report.json().lines().count());
    return JsonParser.parseString(report.json()).getAsJsonObject();
  }

  @Test
  void theSchema() {
    JsonObject json = json(decode());
    assertEquals("loupe-bench/1", json.get("schema").getAsString());
    assertEquals(
        Set.of(
            "schema",
            "phase",
            "model",
            "settings",
            "prompt",
            "ms",
            "ms_per_pass",
            "tokens_per_second",
            "bytes_per_pass",
            "multiply_adds_per_pass",
            "gb_per_second",
            "gflop_per_second",
            "percent_of_read",
            "percent_of_fma",
            "ceilings",
            "machine"),
        json.keySet());
    assertEquals(
        "{\"prompt_tokens\":64,\"tokens\":128,\"attention\":\"one\",\"runs\":7,\"warm_up_runs\":2}",
        json.get("settings").toString());
    assertEquals("[3,1,2]", json.get("prompt").toString());
    assertEquals("[120.0,100.0,80.0]", json.get("ms").toString());
    assertEquals(
        "{\"cpu\":\"Some CPU\",\"processors\":4,\"threads\":2,\"vector_bits\":256,\"java\":\"25\","
            + "\"load_before\":0.25}",
        json.get("machine").toString());
    JsonObject model = json.getAsJsonObject("model");
    assertEquals("some/model", model.get("source").getAsString());
    assertEquals("f16", model.get("stored").getAsString());
    assertEquals("f32", model.get("dtype").getAsString());
    assertFalse(model.get("emulated").getAsBoolean());
  }

  /** Each run is held against its own moment: 50%, 100% and 25% of them. */
  @Test
  void aMachineThatVaries() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, Maps.ONE);
    List<Ceilings> moments =
        List.of(
            new Ceilings(1e9 / 0.12 * 2, 1e9),
            new Ceilings(1e9 / 0.1, 1e9),
            new Ceilings(1e9 / 0.08 * 4, 1e9));
    JsonObject json = json(report(settings, "cpu", "cpu", moments));
    assertEquals(50, number(json, "percent_of_read"), 1e-9);
    assertEquals(
        1 / 0.12 * 2,
        number(json.getAsJsonObject("ceilings"), "read_gb_per_second"),
        1e-9,
        "the median");
  }

  /** 1 GB and 2.5 G multiply-adds in 100 ms, of 20 GB/s and 50 G multiply-adds a second. */
  @Test
  void ratesByHand() {
    JsonObject json = json(decode());
    assertEquals(10, number(json, "gb_per_second"), 1e-9);
    assertEquals(50, number(json, "gflop_per_second"), 1e-9);
    assertEquals(50, number(json, "percent_of_read"), 1e-9);
    assertEquals(50, number(json, "percent_of_fma"), 1e-9);
    assertEquals(100, number(json.getAsJsonObject("ceilings"), "fma_gflop_per_second"), 1e-9);
    JsonObject speed = json.getAsJsonObject("tokens_per_second");
    assertEquals(10, number(speed, "median"), 1e-9);
    assertTrue(number(speed, "p10") < 10, "the slow ones");
    assertTrue(number(json.getAsJsonObject("ms_per_pass"), "p10") < 100, "the fast ones");

    Settings settings = new Settings(Phase.PREFILL, 512, 0, 3, Maps.NONE);
    JsonObject prefill = json(report(settings, "cpu", "cpu", Collections.nCopies(3, CEILINGS)));
    assertEquals(5120, number(prefill.getAsJsonObject("tokens_per_second"), "median"), 1e-9);
    assertEquals(10, number(prefill, "gb_per_second"), 1e-9);
  }

  private static double number(JsonObject json, String name) {
    return json.get(name).getAsDouble();
  }

  @Test
  void theTableFitsATerminal() {
    String text = decode().text();
    for (String line : text.lines().toList()) {
      assertTrue(line.length() <= 80, line);
    }
    for (String words :
        List.of(
            "decode of some/model in f32, stored in f16",
            "prompt of 64 tokens, then 128 more; maps: one; 3 of 7 runs after 2",
            "10.000",
            "100.000",
            "1000.0 MB",
            "10.0 GB/s  50.0% of 20.0",
            "50.0 GFLOP/s  50.0% of 100.0",
            "load before these runs 0.25")) {
      assertTrue(text.contains(words), () -> "no <" + words + "> in:\n" + text);
    }
  }

  @Test
  void aGpuHasNoCeilingsOfTheCpu() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, Maps.NONE);
    BenchReport card = report(settings, "cuda", "NVIDIA H100, f16 weights", List.of());
    JsonObject json = json(card);
    assertTrue(json.get("ceilings").isJsonNull() && json.get("percent_of_read").isJsonNull());
    assertEquals(10, number(json, "gb_per_second"), 1e-9);
    assertFalse(card.text().contains("best"), card.text());
    assertTrue(card.text().contains("10.0 GB/s"), card.text());
  }

  @Test
  void anEmulatedCardHasNoSpeed() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, Maps.NONE);
    BenchReport card = report(settings, "cuda", "Loupe CPU emulator, f16 weights", List.of());
    JsonObject json = json(card);
    assertTrue(json.getAsJsonObject("model").get("emulated").getAsBoolean());
    for (String speed : List.of("tokens_per_second", "gb_per_second", "gflop_per_second")) {
      assertTrue(json.get(speed).isJsonNull(), speed);
    }
    String text = card.text();
    assertTrue(text.contains("ms, emulated") && text.contains("say nothing of a GPU"), text);
    assertFalse(text.contains("tokens/s") || text.contains("GB/s") || text.contains("FLOP"), text);
  }
}
