package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.bench.Machine;
import dev.loupe.bench.kernel.KernelComparison;
import dev.loupe.bench.kernel.Measurement.Status;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ReportJsonTest {
  private static KernelReport simple() {
    return KernelReports.of(
        List.of(
            KernelReports.simple("a", 40, 0),
            KernelReports.simple("b", 10, 0),
            KernelReports.without("w", Status.WRONG, "17 of 1000 outputs"),
            KernelReports.without("l", Status.LEFT_OUT, "no room")));
  }

  @Test
  void whatIsWrittenIsRead() {
    KernelReport none =
        new KernelReport(
            KernelReports.of(List.of()).started(),
            true,
            new Machine("", 1, 0, "", 0),
            1,
            "cpu",
            "",
            false,
            new KernelComparison.Settings(5, 0.1),
            List.of(),
            null);
    for (KernelReport report :
        List.of(
            simple(),
            none,
            KernelReports.hostile(),
            KernelReports.cpu(1, 1),
            KernelReports.cuda(false),
            KernelReports.cuda(true))) {
      String json = report.json();
      assertEquals(1, json.lines().count());
      assertEquals(report, KernelReport.parse(json));
      KernelReport beside = report.against(simple());
      assertEquals(report, KernelReport.parse(beside.json()), "without what it says of another");
    }
  }

  @Test
  void figuresByHand() {
    JsonObject all = JsonParser.parseString(simple().json()).getAsJsonObject();
    assertEquals("loupe-kernels/1", all.get("schema").getAsString());
    assertTrue(all.get("against").isJsonNull());
    JsonObject b = all.getAsJsonArray("results").get(1).getAsJsonObject();
    assertEquals("{\"R\":2,\"C\":500}", b.get("shape").toString());
    assertEquals(10, b.get("median").getAsDouble());
    assertEquals(0.1, b.get("gb_per_s").getAsDouble(), 1e-12); // 1,000 bytes in 10 us
    assertEquals(0.4, b.get("gflop_per_s").getAsDouble(), 1e-12);
    assertEquals(10, b.get("percent_of_roofline").getAsDouble(), 1e-9);
    JsonObject roofline = b.getAsJsonObject("roofline");
    assertEquals(1, roofline.get("gb_per_s").getAsDouble());
    assertEquals(8, roofline.get("gflop_per_s").getAsDouble());
    JsonObject w = all.getAsJsonArray("results").get(2).getAsJsonObject();
    assertEquals("wrong", w.get("status").getAsString());
    assertEquals("17 of 1000 outputs", w.get("why").getAsString());
    assertEquals("[]", w.get("us").toString());
    JsonObject l = all.getAsJsonArray("results").get(3).getAsJsonObject();
    assertEquals("left out", l.get("status").getAsString());
    for (JsonObject each : List.of(w, l)) {
      for (String name :
          List.of("median", "p10", "p90", "gb_per_s", "gflop_per_s", "percent_of_roofline")) {
        assertTrue(each.get(name).isJsonNull(), name);
      }
    }
  }

  @Test
  void neverNan() {
    for (KernelReport report :
        List.of(simple(), KernelReports.cuda(true), KernelReports.hostile())) {
      String json = report.against(KernelReports.cuda(true)).json();
      assertTrue(!json.contains("NaN") && !json.contains("Infinity"), json);
    }
  }

  @Test
  void saysWhatCameOfTheComparison() {
    KernelReport older = KernelReports.of(List.of(KernelReports.simple("b", 20, 0)));
    JsonObject all = JsonParser.parseString(simple().against(older).json()).getAsJsonObject();
    JsonObject against = all.getAsJsonObject("against");
    assertEquals("2026-11-28T12:00:00Z", against.get("started").getAsString());
    assertEquals("new", verdict(against, 0, "verdict"));
    assertEquals("faster", verdict(against, 1, "verdict"));
    assertEquals("100% faster", verdict(against, 1, "words"));
    assertEquals("2.0", verdict(against, 1, "speed"));
  }

  private static String verdict(JsonObject against, int row, String name) {
    return against.getAsJsonArray("results").get(row).getAsJsonObject().get(name).getAsString();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '~',
      value = {
        "\"schema\":\"loupe-kernels/1\" | \"schema\":\"loupe-kernels/2\" | its schema is \"loupe-kernels/2\"",
        "\"schema\":\"loupe-kernels/1\" | \"schema\":[1,2] | its schema is [1,2]",
        "\"schema\":\"loupe-kernels/1\", | ~~ | its schema is null",
        "\"interrupted\":false, | ~~ | it has no 'interrupted'",
        "\"processors\":2 | \"processors\":\"two\" | two",
        "2026-11-28T12 | 2026-11-31T12 | 2026-11-31T12:00:00Z",
        "\"operation\":\"gelu\" | \"operation\":\"glue\" | no operation 'glue'",
        "{\"R\":2,\"C\":500} | {\"R\":2} | it has no 'C'",
        "{\"R\":2,\"C\":500} | {\"R\":0,\"C\":500} | R=0: not 1 to 1048576",
        "\"dtype\":\"f32\" | \"dtype\":\"f7\" | F7",
        "\"status\":\"ok\" | \"status\":\"fine\" | FINE",
        "\"us\":[40.0 | \"us\":[-1 | a time of -1 us",
        "\"us\":[40.0 | \"us\":[0 | a time of 0 us",
        "\"us\":[40.0 | \"us\":[1e999 | a time of 1E+999 us",
        "\"us\":[40.0 | \"us\":[null | JsonNull",
        "\"status\":\"wrong\" | \"status\":\"ok\" | OK with 0 samples",
        "\"variant\":\"a\" | \"variant\":{} | 'variant' is no text",
        "\"samples\":30 | \"samples\":3 | 3 samples",
      })
  void somethingElseIsRefusedWithTheReason(String what, String by, String reason) {
    String json = simple().json();
    assertTrue(json.contains(what), json);
    refused(json.replace(what, by), reason);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "[]",
        "7",
        "null",
        "{}",
        "{",
        "{\"schema\":\"loupe-kernels/1\"}",
        "GIF89a",
        "<html>"
      })
  void neitherIsThisOne(String text) {
    refused(text, "this is no report of a kernel comparison, schema loupe-kernels/1: ");
  }

  @Test
  void cutOffOrTooDeepIsRefused() {
    String json = simple().json();
    for (int i = 0; i < json.length(); i++) {
      refused(json.substring(0, i), "this is no report");
    }
    refused(json + json, "this is no report");
    refused("[".repeat(1_000_000), "this is no report");
    refused("{\"schema\":".repeat(100_000), "this is no report");
  }

  private static void refused(String json, String reason) {
    Exception e = assertThrows(IllegalArgumentException.class, () -> KernelReport.parse(json));
    String message = String.valueOf(e.getMessage());
    assertTrue(message.startsWith("this is no report of a kernel comparison, schema"), message);
    assertTrue(message.contains(reason), message);
    assertEquals(1, message.lines().count(), message);
  }
}
