package dev.loupe.cuda.measure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** scripts/gpu-results.awk makes tables of what the benchmarks print. */
class GpuResultsTest {
  private static final Path SCRIPT = Path.of("..", "scripts", "gpu-results.awk");

  @TempDir Path folder;

  private List<String> results(List<String> lines) throws IOException, InterruptedException {
    return results(lines, "brief=0");
  }

  private List<String> results(List<String> lines, String setting)
      throws IOException, InterruptedException {
    assumeTrue(Files.isDirectory(Path.of("src")), "not in a checkout");
    assumeTrue(Files.isExecutable(Path.of("/usr/bin/awk")), "no awk");
    Path in = Files.write(folder.resolve("lines"), lines);
    Process awk =
        new ProcessBuilder("awk", "-v", setting, "-f", SCRIPT.toString(), in.toString())
            .redirectErrorStream(true)
            .start();
    String text = new String(awk.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, awk.waitFor(), text);
    return text.lines().toList();
  }

  private static String run(String by, String maps, int prompt, double ms, int n, double textMs) {
    return "{%s\"model\": \"gpt2\", \"device\": \"a card\", \"dtype\": \"f16\", \"maps\": \"%s\", "
            .formatted(by, maps)
        + "\"prefill_tokens\": %d, \"prefill_ms\": {\"median\": %s, \"least\": 1, \"most\": 99}, "
            .formatted(prompt, ms)
        + "\"decode_tokens\": %d, \"decode_ms\": {\"median\": %s, \"least\": 1, \"most\": 99}}"
            .formatted(n, textMs);
  }

  @Test
  void loupeIsComparedWithTheSameWeightsAndMaps() throws Exception {
    String torch = "\"by\": \"torch.compile\", \"versions\": \"torch 9\", ";
    List<String> lines =
        results(
            List.of(
                run("", "off", 512, 2.0, 400, 100.0),
                run("", "one layer", 512, 2.0, 400, 101.0),
                run("", "all", 512, 4.0, 400, 125.0),
                run("", "off", 1024, 4.0, 0, 0.001),
                run(torch, "off", 512, 4.0, 400, 150.0),
                run(torch, "off", 1024, 3.0, 0, 0.001),
                run(torch.replace("compile", "maps"), "all", 512, 4.0, 400, 1000.0)));
    assertTrue(lines.contains("| gpt2 | f16 | off | 256000 | 256000 | 4000 |"), lines::toString);
    assertTrue(lines.contains("| gpt2 | f16 | one layer | 256000 |  | 3960 |"), lines::toString);
    assertTrue(lines.contains("| gpt2 | f16 | all | 128000 |  | 3200 |"), lines::toString);
    assertTrue(
        lines.contains(
            "| torch.compile | gpt2 | f16 | off | 128000 (2.00) | 341333 (0.75) | 2667 (1.50) |"),
        lines::toString);
    assertTrue(
        lines.contains("| torch.maps | gpt2 | f16 | all | 128000 (1.00) |  | 400 (8.00) |"),
        lines::toString);
  }

  @Test
  void kernelsAreComparedWithACopy() throws Exception {
    List<String> lines =
        results(
            List.of(
                "{\"ceiling\": \"copy\", \"shape\": \"1.0 GiB\", \"GB_per_s\": {\"median\": 2500, \"p10\": 2400, \"p90\": 2.6e+03}}",
                "{\"kernel\": \"gemv\", \"variant\": \"v1\", \"element\": \"i8\", \"shape\": \"1 row, 8 to 9\", \"bytes\": 5000000, \"us\": {\"median\": 4.000, \"p10\": 3.900, \"p90\": 1.200e+01}}"));
    assertTrue(
        lines.contains("| gemv | v1 | i8 | 1 row, 8 to 9 | 4.0 (3.9 to 12.0) | 1250 | 50% |"),
        lines::toString);
  }

  /** The format of the lines is that of the benchmarks. */
  @Test
  void aReportOfOneScreenHasTheFastestVariants() throws Exception {
    List<String> lines = new ArrayList<>();
    lines.add("{\"ids\": \"f32\", \"found\": \"the same 100 tokens\"}");
    lines.add(run("", "off", 512, 2.0, 400, 100.0));
    lines.add(run("", "all", 512, 4.0, 400, 125.0));
    lines.add(
        "{\"ceiling\": \"copy\", \"shape\": \"1 GiB\", \"GB_per_s\": {\"median\": 2000, \"p10\": 1, \"p90\": 2}}");
    for (int shape = 0; shape < 50; shape++) {
      for (String variant : List.of("v0", "v1", "v2")) {
        lines.add(
            "{\"kernel\": \"gemv\", \"variant\": \"%s\", \"element\": \"i8\", \"shape\": \"%d rows\","
                    .formatted(variant, shape)
                + " \"bytes\": 5000000, \"us\": {\"median\": %d.000, \"p10\": 1, \"p90\": 2}}"
                    .formatted(variant.equals("v1") ? 5 : 80));
      }
    }
    List<String> report = results(lines, "brief=1");
    assertTrue(report.contains("  text against the CPU, f32: the same 100 tokens"));
    assertTrue(
        report.stream()
            .anyMatch(
                line ->
                    line.matches(" +Loupe +gpt2 +f16 .*: 256000 tokens/s, text: 4000 tokens/s")),
        report::toString);
    assertTrue(
        report.stream()
            .anyMatch(line -> line.matches(" +gemv in i8, 0 rows +v1 +5.0 us, 50% of copy")),
        report::toString);
    assertTrue(report.stream().noneMatch(line -> line.contains(" v2 ")), report::toString);
    assertEquals("  and 34 more kernels and shapes in results.md", report.getLast());
    assertTrue(report.size() < 24, "%d lines".formatted(report.size()));
  }

  @Test
  @OnDevice(emulated = true)
  void everyLineOfTheBenchmarksHasItsRow() throws Exception {
    List<String> lines = new ArrayList<>();
    try (Gpu gpu = Emulator.open()) {
      KernelBenchmark.run(gpu, KernelBenchmark.tiny(), 1, 1 << 20, 64, lines::add);
      MicroBenchmark micro = new MicroBenchmark(gpu);
      for (MicroBenchmark.Edge edge : MicroBenchmark.Edge.values()) {
        micro.time(edge, 2, 4, 1, lines::add);
      }
      micro.timeStreams(300_000, 1, lines::add);
    }
    List<String> tables = results(lines);
    int ceilings = 2;
    int heads = 2 * 3;
    assertEquals(
        lines.size() - ceilings + heads,
        tables.stream().filter(line -> line.startsWith("|")).count(),
        tables::toString);
    assertTrue(
        tables.stream().anyMatch(line -> line.matches("The card copies [\\d.]+ GB/s.*product.*")));
    assertTrue(tables.stream().noneMatch(line -> line.matches(".*\\| (0|0\\.00) \\(.*")));
  }
}
