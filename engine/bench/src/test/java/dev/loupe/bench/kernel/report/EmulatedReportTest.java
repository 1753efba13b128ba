package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** An emulated card says nothing of a real one, in any format. */
class EmulatedReportTest {
  private static final KernelReport EMULATED = KernelReports.cuda(true);

  private static List<String> all(String pattern, String text) {
    return Pattern.compile(pattern).matcher(text).results().map(MatchResult::group).toList();
  }

  private static void noPerformance(String text) {
    assertEquals(
        List.of(),
        all(
            "%|/s\\b|\\d+(\\.\\d+)?x\\b|times as fast|wins|is ahead|, ahead|fastest|faster|slower|within noise"
                + "|speed.up|roofline|of best|the limit|<svg",
            text));
  }

  private static List<KernelReport> reports() {
    return List.of(
        EMULATED, EMULATED.against(EMULATED), EMULATED.against(KernelReports.cuda(false)));
  }

  @ParameterizedTest
  @ValueSource(ints = {40, 60, 80, 120})
  void text(int columns) {
    for (KernelReport report : reports()) {
      String text = report.text(columns);
      noPerformance(text);
      String line = text.replaceAll("\\s+", " ");
      assertTrue(line.contains("they say nothing of a GPU."), line);
      assertEquals(4, all("variant +[um]s, emulated", text).size());
    }
  }

  @Test
  void tables() {
    for (KernelReport report : reports()) {
      noPerformance(report.markdown());
      assertTrue(report.markdown().contains(KernelReport.EMULATED));
      assertEquals(4, all("\\| median, emulated \\|", report.markdown()).size());
      List<String> csv = report.csv().lines().toList();
      assertEquals(List.of(), all("speed_up|per_s|percent|roofline|occupancy", csv.getFirst()));
      assertTrue(csv.stream().skip(1).allMatch(l -> l.contains(",true,2026-")));
    }
  }

  @Test
  void page() {
    for (KernelReport report : reports()) {
      String page = report.html().replaceFirst("(?s)<style>.*?</style>", "");
      noPerformance(page);
      assertTrue(page.contains("<p class=\"warning\">" + KernelReport.EMULATED));
      assertTrue(page.contains("median, emulated (p10 to p90)"));
      assertTrue(page.contains("<li>v1: one thread a query</li>"));
    }
  }

  @Test
  void json() {
    for (KernelReport report : reports()) {
      String json = report.json();
      assertTrue(json.contains("\"emulated\":true"));
      assertEquals(
          List.of(),
          all(
              "\"(gb_per_s|gflop_per_s|roofline|percent_of_roofline|occupancy|speed)\":(?!null)",
              json));
      assertEquals(List.of(), all("faster|slower|within noise", json));
    }
  }

  /** Where the older run is of an emulated card, this one keeps its own figures alone. */
  @Test
  void notComparedEither() {
    KernelReport real = KernelReports.cuda(false).against(EMULATED);
    for (String text : List.of(real.text(80), real.markdown(), real.html(), real.json())) {
      assertEquals(List.of(), all("% faster|% slower|within noise[^:,]", text));
      assertTrue(text.contains("Times of an emulated card are not compared."));
    }
  }
}
