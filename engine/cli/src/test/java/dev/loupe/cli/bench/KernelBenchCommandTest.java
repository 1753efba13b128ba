package dev.loupe.cli.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.EmulatedGpu;
import dev.loupe.OnGpu;
import dev.loupe.cli.Ran;
import dev.loupe.cli.terminal.ExitCode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** {@code loupe bench attention} and the other operations. */
class KernelBenchCommandTest {
  private static final String[] SHORT = {"--samples", "5", "--seconds", "0.1", "-q"};
  private static final String TINY = "T=33,H=2,D=16";

  @TempDir Path folder;

  private static Ran bench(Object... args) {
    return Ran.loupe(Stream.of(new Object[] {"bench"}, args, SHORT).flatMap(Stream::of).toArray());
  }

  private static Set<String> statuses(JsonObject report) {
    Set<String> statuses = new TreeSet<>();
    for (JsonElement each : report.getAsJsonArray("results")) {
      statuses.add(each.getAsJsonObject().get("status").getAsString());
    }
    return statuses;
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "attention | T=33,H=2,D=16",
        "linear | M=7,K=65,N=33",
      })
  void operationsOnTheCpu(String operation, String shape) {
    compare(operation, shape);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "layernorm | R=3,C=72",
        "softmax | R=3,C=72",
        "gelu | R=3,C=72",
        "map | T=33,H=2,D=16",
        "decode-attention | T=33,H=2,D=16"
      })
  @Tag("sweep")
  void otherOperationsOnTheCpu(String operation, String shape) {
    compare(operation, shape);
  }

  private static void compare(String operation, String shape) {
    JsonObject report =
        bench(operation, "--backend", "cpu", "--shapes", shape, "--json").well().json().getFirst();
    assertEquals("loupe-kernels/1", report.get("schema").getAsString());
    assertEquals(Set.of("ok"), statuses(report), report.toString());
    JsonObject result = report.getAsJsonArray("results").get(0).getAsJsonObject();
    assertEquals("naive", result.get("variant").getAsString());
    assertEquals(5, result.getAsJsonArray("us").size());
  }

  @Test
  void aTableForPeopleAndFilesBeside() throws Exception {
    Path html = folder.resolve("report.html");
    Path json = folder.resolve("report.json");
    Path csv = folder.resolve("report.csv");
    Path markdown = folder.resolve("report.md");
    Object[] args = {
      "attention",
      "--backend",
      "cpu",
      "--shapes",
      TINY,
      "--variants",
      "naive,tiled",
      "--html",
      html,
      "--json=" + json,
      "--csv=" + csv,
      "--markdown=" + markdown
    };
    Ran ran = bench(args).well();
    assertEquals("", ran.err());
    assertTrue(ran.out().contains("naive") && ran.out().contains("T=33 H=2 D=16"), ran.out());
    assertFalse(ran.out().contains("online"), ran.out());
    assertTrue(Files.readString(html).startsWith("<!doctype html>"), Files.readString(html));
    JsonObject report = JsonParser.parseString(Files.readString(json)).getAsJsonObject();
    assertEquals(2, report.getAsJsonArray("results").size());
    assertEquals(3, Files.readAllLines(csv).size());
    assertTrue(Files.readString(markdown).contains("| naive"), Files.readString(markdown));

    Ran against =
        bench("attention", "--backend", "cpu", "--shapes", TINY, "--against", json).well();
    assertTrue(against.out().contains("naive"), against.out());
    assertTrue(against.out().contains(report.get("started").getAsString().substring(0, 10)));
  }

  @Test
  void formatsOnStandardOutput() {
    List<String> firsts = new ArrayList<>();
    for (String format : new String[] {"--csv", "--markdown"}) {
      Ran ran =
          bench("gelu", "--backend", "cpu", "--shapes", "R=2,C=17", "--variants", "naive", format)
              .well();
      firsts.add(ran.out().lines().findFirst().orElse(""));
    }
    assertTrue(firsts.get(0).startsWith("operation,"), firsts.get(0));
    assertTrue(firsts.get(1).startsWith("#"), firsts.get(1));
  }

  @Test
  void whatCantBeMeasuredIsSaidBeforeAnythingIs() throws Exception {
    Path foreign = Files.writeString(folder.resolve("foreign.json"), "{\"schema\": \"other/1\"}");
    bench("gelu", "--shapes", "R=2,C").refused(ExitCode.BAD_USAGE, "'C'");
    bench("gelu", "--shapes", "T=5").refused(ExitCode.BAD_USAGE, "'T'", "R, C");
    bench("gelu", "--shapes", "R=0").refused(ExitCode.BAD_USAGE, "R=0");
    bench("gelu", "--backend", "cpu", "--shapes", "R=1000000,C=1000000")
        .refused(ExitCode.BAD_USAGE, "more than");
    bench("gelu", "--backend", "cpu", "--variants", "v9")
        .refused(ExitCode.BAD_USAGE, "'v9'", "naive");
    bench("gelu", "--backend", "cpu", "--dtype", "f16").refused(ExitCode.BAD_USAGE, "gelu");
    bench("gelu", "--json", "--csv").refused(ExitCode.BAD_USAGE, "two formats", "file");
    bench("gelu", "--against", folder.resolve("none.json"))
        .refused(ExitCode.BAD_INPUT, "none.json");
    bench("gelu", "--against", foreign).refused(ExitCode.BAD_INPUT, "foreign.json");
    bench("gelu", "--html", folder.resolve("none/report.html"))
        .refused(ExitCode.FAILED, "report.html", "can't be written");
    Ran.loupe("bench", "gelu", "--samples", 4).refused(ExitCode.BAD_USAGE, "4 samples", "5");
    Ran.loupe("bench", "gelu", "--seconds", 0).refused(ExitCode.BAD_USAGE, "0.0 seconds");
    bench("gelu", "--threads", -1).refused(ExitCode.BAD_USAGE, "-1 threads");
    bench("gelu", "--vector-bits", 100).refused(ExitCode.BAD_USAGE, "100");
    bench("tanh").refused(ExitCode.BAD_USAGE, "tanh", "attention", "decode-attention");
    assertEquals(1, folderSize());
  }

  private long folderSize() throws Exception {
    try (Stream<Path> files = Files.list(folder)) {
      return files.count();
    }
  }

  @OnGpu
  @Test
  void anEmulatedCardIsHeldToTheSameAnswersAndHasNoSpeed() throws Exception {
    EmulatedGpu.require();
    EmulatedGpu.reset();
    Ran ran = bench("attention", "--backend", "cuda", "--shapes", "T=33,H=1,D=16", "--json").well();
    JsonObject report = ran.json().getFirst();
    assertTrue(report.get("emulated").getAsBoolean());
    assertFalse(statuses(report).contains("wrong"), ran.out());
    for (JsonElement each : report.getAsJsonArray("results")) {
      assertTrue(each.getAsJsonObject().get("gflop_per_s").isJsonNull(), ran.out());
      assertTrue(each.getAsJsonObject().get("percent_of_roofline").isJsonNull(), ran.out());
    }
  }
}
