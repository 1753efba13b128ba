package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.bench.kernel.Measurement.Status;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Test;
import org.w3c.dom.Element;
import org.xml.sax.InputSource;

class ReportPageTest {
  private static List<KernelReport> reports() {
    return List.of(
        KernelReports.cpu(1, 1).against(KernelReports.cpu(100, 0.9)),
        KernelReports.cuda(false),
        KernelReports.cuda(true).against(KernelReports.cuda(false)),
        KernelReports.hostile().against(KernelReports.hostile()),
        KernelReports.of(List.of(KernelReports.without("w", Status.WRONG, "no"))),
        KernelReports.of(List.of()));
  }

  private static List<String> all(String pattern, String page) {
    return Pattern.compile(pattern, Pattern.DOTALL)
        .matcher(page)
        .results()
        .map(MatchResult::group)
        .toList();
  }

  private static Element xml(String text) throws Exception {
    return DocumentBuilderFactory.newInstance()
        .newDocumentBuilder()
        .parse(new InputSource(new StringReader(text)))
        .getDocumentElement();
  }

  /** The page is XML too, but for its first line and what stands alone in its head. */
  @Test
  void isWellFormed() throws Exception {
    for (KernelReport report : reports()) {
      String page = report.html();
      assertTrue(page.startsWith("<!doctype html>\n"));
      xml(page.replaceFirst("<!doctype html>", "").replaceAll("<((meta|link) [^>]*)>", "<$1/>"));
    }
  }

  @Test
  void fetchesNothingAndRunsNothing() throws Exception {
    for (KernelReport report : reports()) {
      String page = report.html();
      assertEquals(List.of(), all("<script|<iframe|<img|<object|<a |javascript:", page));
      assertEquals(List.of(), all(" on\\w+=\"| style=\"", page));
      assertEquals(List.of(), all("https?:|@import|url\\(|//", page));
      assertEquals(List.of(" href=\"data:,\""), all(" (href|src|srcset|action)=\"[^\"]*\"", page));
      List<String> styles = all("(?<=<style>).*?(?=</style>)", page);
      assertEquals(1, styles.size());
      byte[] digest =
          MessageDigest.getInstance("SHA-256")
              .digest(styles.getFirst().getBytes(StandardCharsets.UTF_8));
      assertEquals(
          List.of(
              "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src"
                  + " 'sha256-"
                  + Base64.getEncoder().encodeToString(digest)
                  + "'"),
          all("(?<=<meta http-equiv=\"Content-Security-Policy\" content=\").*?(?=\">)", page));
    }
  }

  @Test
  void namesAreText() throws Exception {
    String page = KernelReports.hostile().html();
    assertFalse(page.contains("<script"));
    assertFalse(page.contains("\u001b"));
    Element root =
        xml(page.replaceFirst("<!doctype html>", "").replaceAll("<((meta|link) [^>]*)>", "<$1/>"));
    String name = KernelReports.hostile().measurements().getFirst().variant();
    String shown = name.replace('\n', ' ').replace('\u001b', '\ufffd').replace('\ud800', '\ufffd');
    assertTrue(root.getTextContent().contains(shown), "as it is");
    assertTrue(shown.contains("<script>"));
  }

  private static String words(String page) {
    return page.replaceAll("(?s)<style>.*?</style>", "").replaceAll("<[^>]*>", " ");
  }

  @Test
  void hasAllThatTheReaderNeeds() {
    KernelReport report = KernelReports.cuda(false);
    String page = report.html();
    String words = words(page);
    for (String must :
        List.of(
            "Causal self-attention of a prompt, 6 variants",
            "On made-up card.",
            "v5 is ahead: 77 times as fast as v1, but too little to tell from v4",
            "Some 2-core CPU; 2 processors, 2 threads used",
            "up to 30 runs of each, in turns, with cold caches, 2 s of each at most.",
            "memory gives 1500 GB/s, arithmetic 100 TFLOP/s.",
            "Speed against size",
            "Roofline",
            "copies run ahead, &quot;cp.async&quot;",
            "WRONG: 12 of 3072 outputs, the first: output 17 is 0.25, not 0.125",
            "left out: only 16-bit inputs",
            "A time is the median of the runs")) {
      assertTrue(words.contains(must), must);
    }
    // four ladders, two speeds and two rooflines, each wide and narrow
    assertEquals(16, all("<svg ", page).size());
    assertEquals(4, all("class=\"bar best\"[^>]*>(?=.*?</svg>)", page).size() / 2);
    assertEquals(2 * 4, all("class=\"name wrong\"", page).size());
    assertTrue(words.contains("x as fast, ahead"), "v4 is level");
    assertTrue(words.contains("x as fast, fastest"), "in bf16");
  }

  @Test
  void oneShapeHasNoCurveAndNothingHasNoFigures() {
    String one = KernelReports.of(List.of(KernelReports.simple("a", 1, 0))).html();
    assertFalse(one.contains("Speed against size"));
    assertTrue(one.contains("Roofline"));
    String none = KernelReports.of(List.of()).html();
    assertEquals(List.of(), all("<svg", none));
    assertTrue(none.contains("Nothing was measured"));
    String wrong =
        KernelReports.of(List.of(KernelReports.without("w", Status.WRONG, "7 outputs"))).html();
    assertTrue(words(wrong).contains("WRONG: 7 outputs"));
    assertTrue(words(wrong).contains("No variant has times here."));
  }

  @Test
  void saysWhatCameOfTheComparison() {
    String words =
        words(KernelReports.cpu(1, 1).against(KernelReports.cpu(100, 0.9)).html())
            .replaceAll("\\s+", " ");
    assertTrue(
        words.contains("Against the run of 2026-11-28 12:00:00 UTC: 4 within noise, 24 faster."),
        words);
    assertTrue(words.contains("Within noise: the ranges from p10 to p90"), words);
  }
}
