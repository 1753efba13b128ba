package dev.loupe.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Precision;
import dev.loupe.weights.RandomCheckpoint;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Reports of made-up measurements. */
class BenchReportTest {
  private static final Machine MACHINE = new Machine("Some CPU", 4, 256, "25", 0.25);
  private static final Ceilings CEILINGS = new Ceilings(20e9, 50e9);

  private static BenchReport report(
      Settings settings, String backend, String device, List<Ceilings> ceilings) {
    return report(settings, backend, device, ceilings, Memory.NONE);
  }

  private static BenchReport report(
      Settings settings, String backend, String device, List<Ceilings> ceilings, Memory memory) {
    ModelInfo model =
        new ModelInfo(
            "some/model",
            Optional.empty(),
            RandomCheckpoint.Size.GPT2_XL.config(),
            "f16",
            backend,
            device,
            5);
    Card card =
        backend.equals("cpu")
            ? Card.NONE
            : new Card(
                OptionalLong.of(244),
                device.contains("emulator") ? OptionalDouble.empty() : OptionalDouble.of(40e9));
    int tokens = settings.phase() == Phase.PREFILL ? settings.promptTokens() : 1;
    boolean several = settings.maps().size() > 1;
    List<Measured> measured =
        settings.maps().stream()
            .map(
                maps ->
                    new Measured(
                        maps,
                        tokens,
                        List.of(120.0, 100.0, 80.0),
                        several && maps != Maps.NONE ? List.of(1.5, 1.25, 1.125) : List.of(),
                        new Work(1e9, 2.5e9),
                        ceilings))
            .toList();
    return new BenchReport(
        settings, model, Precision.F32, 2, List.of(3, 1, 2), measured, memory, card, MACHINE);
  }

  private static BenchReport compared(String backend, String device) {
    Settings settings = new Settings(Phase.DECODE, 64, 63, 3, List.of(Maps.values()));
    List<Ceilings> ceilings = backend.equals("cpu") ? Collections.nCopies(3, CEILINGS) : List.of();
    OptionalLong card = backend.equals("cpu") ? OptionalLong.empty() : OptionalLong.of(5_000_000);
    Memory memory = new Memory(OptionalLong.of(850_000_000), 12_300_000, card);
    return report(settings, backend, device, ceilings, memory);
  }

  private static BenchReport decode() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, List.of(Maps.ONE));
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
            "percent_of_copy",
            "ceilings",
            "map_bytes",
            "memory",
            "launches_per_step",
            "copy_bytes_per_second",
            "machine"),
        json.keySet());
    assertEquals(
        "{\"prompt_tokens\":64,\"tokens\":128,\"texts\":1,\"attention\":\"one\",\"runs\":7,\"warm_up_runs\":2}",
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

  /** Each kind of maps in its object, with what it costs; then the object's own keys are fewer. */
  @Test
  void theSchemaOfSeveral() {
    JsonObject json = json(compared("cpu", "cpu"));
    assertEquals("loupe-bench/2", json.get("schema").getAsString());
    assertEquals(
        Set.of(
            "schema",
            "phase",
            "model",
            "settings",
            "prompt",
            "measured",
            "memory",
            "launches_per_step",
            "copy_bytes_per_second",
            "machine"),
        json.keySet());
    assertEquals("none,one,all", json.getAsJsonObject("settings").get("attention").getAsString());
    JsonArray measured = json.getAsJsonArray("measured");
    JsonObject none = measured.get(0).getAsJsonObject();
    JsonObject all = measured.get(2).getAsJsonObject();
    assertEquals("none", none.get("attention").getAsString());
    assertTrue(none.get("times_none").isJsonNull());
    assertEquals(0, number(none, "map_bytes"));
    assertEquals("all", all.get("attention").getAsString());
    assertEquals(100, number(all.getAsJsonObject("ms_per_pass"), "median"), 1e-9);
    JsonObject times = all.getAsJsonObject("times_none");
    assertEquals("[1.5,1.25,1.125]", times.get("rounds").toString());
    assertEquals(1.25, number(times, "median"));
    assertEquals(1.15, number(times, "p10"), 1e-9);
    assertEquals(1.45, number(times, "p90"), 1e-9);
    // XL has 48 layers of 25 heads; 64 + 1 + 63 tokens have 128 129 / 2 pairs each
    assertEquals(4.0 * 48 * 25 * 128 * 129 / 2, number(all, "map_bytes"));
    JsonObject memory = json.getAsJsonObject("memory");
    assertEquals(850_000_000, number(memory, "process_peak_bytes"));
    assertEquals(12_300_000, number(memory, "heap_bytes"));
    assertEquals(2.0 * 48 * 1600 * 128 * 4, number(memory, "kv_cache_bytes"));
    assertTrue(memory.get("card_bytes").isJsonNull());
    assertTrue(number(memory, "weight_bytes") > 2 * 1.5e9, "as the file has them, in f16");
  }

  @Test
  void theTableOfSeveral() {
    String text = compared("cpu", "cpu").text();
    for (String line : text.lines().toList()) {
      assertTrue(line.length() <= 80, line);
    }
    for (String words :
        List.of(
            "9 of 9 runs after 6 to warm up, in turns",
            "maps: none ",
            "maps: all ",
            "times none              1.250        1.150        1.450",
            "by formula, none",
            "peak of process      850.0 MB",
            "Java's heap           12.3 MB",
            "KV cache              78.6 MB",
            "maps: one              0.8 MB",
            "maps: all             39.6 MB")) {
      assertTrue(text.contains(words), () -> "no <" + words + "> in:\n" + text);
    }
    assertFalse(text.contains("card"), text);
  }

  /** What maps cost there is no less made up than the times. */
  @Test
  void anEmulatedCardHasNoRatios() {
    BenchReport report = compared("cuda", "Loupe CPU emulator, f16 weights");
    assertFalse(report.text().contains("times none"), report.text());
    assertTrue(report.text().contains("emulated card          5.0 MB"), report.text());
    JsonObject json = json(report);
    for (JsonElement each : json.getAsJsonArray("measured")) {
      assertTrue(each.getAsJsonObject().get("times_none").isJsonNull());
    }
    assertEquals(5_000_000, number(json.getAsJsonObject("memory"), "card_bytes"));
  }

  @Test
  void thePeakIsOfLinux(@TempDir Path folder) throws Exception {
    Path status = folder.resolve("status");
    Files.writeString(status, "VmPeak:\t 9 kB\nVmHWM:\t  850 kB\nVmRSS:\t 7 kB\n");
    assertEquals(OptionalLong.of(850 * 1024), Memory.peak(status));
    Files.writeString(status, "VmHWM: many kB\n");
    assertEquals(OptionalLong.empty(), Memory.peak(status));
    assertEquals(OptionalLong.empty(), Memory.peak(folder.resolve("none")));
  }

  @Test
  void memoryIsTheMostThatWasSeen() {
    Memory first = new Memory(OptionalLong.of(7), 5, OptionalLong.empty());
    Memory second = new Memory(OptionalLong.of(3), 6, OptionalLong.of(2));
    Memory both = new Memory(OptionalLong.of(7), 6, OptionalLong.of(2));
    assertEquals(both, first.orMore(second));
    assertEquals(both, second.orMore(first));
  }

  /** Each run is held against its own moment: 50%, 100% and 25% of them. */
  @Test
  void aMachineThatVaries() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, List.of(Maps.ONE));
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

    Settings settings = new Settings(Phase.PREFILL, 512, 0, 3, List.of(Maps.NONE));
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
            "prompt of 64 tokens, then 128 more; 3 of 7 runs after 2 to warm up",
            "maps: one ",
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
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, List.of(Maps.NONE));
    BenchReport card = report(settings, "cuda", "NVIDIA H100, f16 weights", List.of());
    JsonObject json = json(card);
    assertTrue(json.get("ceilings").isJsonNull() && json.get("percent_of_read").isJsonNull());
    assertEquals(10, number(json, "gb_per_second"), 1e-9);
    assertFalse(card.text().contains("best"), card.text());
    assertTrue(card.text().contains("10.0 GB/s  25.0% of 40.0"), card.text());
    assertTrue(card.text().contains("of what the card copies"), card.text());
    assertTrue(card.text().contains("launches                244"), card.text());
    assertEquals(244, number(json, "launches_per_step"));
    assertEquals(25, number(json, "percent_of_copy"), 1e-9);
  }

  @Test
  void anEmulatedCardHasNoSpeed() {
    Settings settings = new Settings(Phase.DECODE, 64, 128, 7, List.of(Maps.NONE));
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
