package dev.loupe.corpus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.attention.HeadScore;
import dev.loupe.corpus.CorpusReport.Head;
import dev.loupe.corpus.CorpusReport.Window;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class CorpusReportTest {
  private static CorpusReport small() {
    ScoreSummary entropy = new ScoreSummary();
    entropy.add(new Window("a", 0, 5, 1.0 / 3));
    entropy.add(new Window("b", 1, 6, 2.0 / 3));
    CorpusSummary corpus = new CorpusSummary();
    corpus.add("a", 1, 0, 5, 4, -8);
    corpus.add("b", 2, 1, 6, 5, -5);
    corpus.add("c", 1, 0, 1, 0, 0);
    Map<String, Object> facts = new LinkedHashMap<>();
    facts.put("model", "m");
    facts.put("waves", 3);
    facts.put("log_prob", true);
    return new CorpusReport(
        facts,
        corpus.corpus(),
        List.of(new CorpusReport.Failure("broken", 1, List.of(new CorpusReport.Place("b", 0)))),
        List.of(
            new Head(1, 0, Map.of()), new Head(0, 2, Map.of(HeadScore.ENTROPY, entropy.score()))));
  }

  @Test
  void jsonByHand() {
    String a = "{\"doc_id\":\"a\",\"windows\":1,\"n_tokens\":5,\"perplexity\":7.38906}";
    String b = "{\"doc_id\":\"b\",\"windows\":2,\"n_tokens\":6,\"perplexity\":2.71828}";
    String low = "{\"doc_id\":\"a\",\"window\":0,\"n_tokens\":5,\"value\":0.333333}";
    String high = "{\"doc_id\":\"b\",\"window\":1,\"n_tokens\":6,\"value\":0.666667}";
    assertEquals(
        "{\"schema\":\"loupe-corpus/1\",\"run\":{\"model\":\"m\",\"waves\":3,\"log_prob\":true},\"documents\":3,\"windows\":4,"
            + "\"failed_windows\":1,\"tokens\":12,\"perplexity\":{\"corpus\":4.2395,\"tokens\":9,"
            + "\"documents\":{\"count\":2,\"mean\":5.05367,\"sd\":2.33539,\"min\":2.71828,"
            + "\"p5\":2.71828,\"p25\":2.71828,\"p50\":2.71828,\"p75\":7.38906,\"p95\":7.38906,"
            + "\"max\":7.38906},\"highest\":["
            + a
            + ","
            + b
            + "],\"lowest\":["
            + b
            + ","
            + a
            + "]},\"failures\":[{\"error\":\"broken\",\"windows\":1,\"examples\":[{\"doc_id\":\"b\","
            + "\"window\":0}]}],\"heads\":[{\"layer\":0,\"head\":2,\"scores\":{\"entropy\":{"
            + "\"count\":2,\"mean\":0.5,\"sd\":0.166667,\"min\":0.333333,\"p5\":0.333333,"
            + "\"p25\":0.333333,\"p50\":0.333333,\"p75\":0.666667,\"p95\":0.666667,"
            + "\"max\":0.666667,\"lowest\":["
            + low
            + ","
            + high
            + "],\"highest\":["
            + high
            + ","
            + low
            + "]}}},{\"layer\":1,\"head\":0,\"scores\":{}}]}\n",
        small().json());
  }

  private static CorpusReport nothing() {
    return new CorpusReport(Map.of(), new CorpusSummary().corpus(), List.of(), List.of());
  }

  @Test
  void nothingIsSaidToBeNothing() {
    assertTrue(nothing().json().contains("\"perplexity\":null"));
    String page = nothing().html();
    assertTrue(page.contains("0 documents in 0 windows, 0 tokens. No window failed."));
    assertTrue(page.contains("There are no statistics of heads."));
    assertTrue(page.contains("There are no perplexities."));
    assertFalse(page.contains("<script"));
  }

  @Test
  void aPerplexityThatNoNumberHoldsIsLeftOut() {
    CorpusSummary corpus = new CorpusSummary();
    corpus.add("a", 1, 0, 2, 1, -1000);
    corpus.add("b", 1, 0, 2, 1, 0);
    CorpusReport report = new CorpusReport(Map.of(), corpus.corpus(), List.of(), List.of());
    JsonObject perplexity =
        JsonParser.parseString(report.json()).getAsJsonObject().getAsJsonObject("perplexity");
    assertEquals(1, perplexity.getAsJsonObject("documents").get("count").getAsInt());
    assertEquals(1.40359e217, perplexity.get("corpus").getAsDouble());
    assertTrue(report.html().contains("Perplexity 1.40e+217"));
  }

  @Test
  void namesInJsonAreWholeAndActOnNothing() {
    String json = Reports.of(2, 2, HeadScore.SELF).json();
    JsonObject failure =
        JsonParser.parseString(json)
            .getAsJsonObject()
            .getAsJsonArray("failures")
            .get(1)
            .getAsJsonObject();
    assertEquals(Reports.HOSTILE, failure.get("error").getAsString());
    assertTrue(
        json.codePoints()
            .allMatch(
                c -> {
                  int type = Character.getType(c);
                  return c == '\n'
                      || (type != Character.CONTROL
                          && type != Character.FORMAT
                          && type != Character.SURROGATE);
                }));
    assertTrue(json.contains("\\u202etxt.exe") && json.contains("\\ud800"));
  }

  private static List<String> all(String pattern, String page) {
    return Pattern.compile(pattern, Pattern.DOTALL)
        .matcher(page)
        .results()
        .map(MatchResult::group)
        .toList();
  }

  @Test
  void thePageFetchesNothingAndRunsOnlyItsScript() throws Exception {
    String page = Reports.of(2, 3, HeadScore.values()).html();
    assertEquals(2, all("<script", page).size(), "data and program");
    assertEquals(2, all("</script", page).size());
    assertEquals(List.of(), all("<iframe|<img|<object|javascript:|innerHTML|eval\\(", page));
    assertEquals(List.of(), all("<[^>]* (on\\w+|style)=\"", page));
    assertEquals(List.of(), all("https?:(?!//www.w3.org/2000/svg)|@import|url\\(", page));
    assertEquals(
        List.of(" href=\"data:,\"", " href=\"#failures\""),
        all(" (href|src|srcset|action)=\"[^\"]*\"", page));
    String script = all("(?<=<script>).*?(?=</script>)", page).getFirst();
    String style = all("(?<=<style>).*?(?=</style>)", page).getFirst();
    assertEquals(
        List.of(
            "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; script-src "
                + hash(script)
                + "; style-src "
                + hash(style)),
        all("(?<=<meta http-equiv=\"Content-Security-Policy\" content=\").*?(?=\">)", page));
    assertEquals(List.of(), all("[\\u0000-\\u0009\\u000b-\\u001f\\u202e\\ud800]", page));
    assertTrue(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"), "shown as it is");
    assertTrue(page.contains("U+202Etxt.exe U+001B[31m"));
  }

  private static String hash(String text) throws Exception {
    byte[] digest =
        MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
    return "'sha256-" + Base64.getEncoder().encodeToString(digest) + "'";
  }

  @Test
  void theHeadlineSaysIt() {
    String page = Reports.of(1, 1, HeadScore.SELF).html();
    assertTrue(page.contains("40 documents in 79 windows, 78,000 tokens. Perplexity "), page);
    assertTrue(page.contains("5 windows failed.</a>"));
    assertTrue(page.contains("<td>not UTF-8: byte 17</td><td>4</td>"));
    assertFalse(page.contains("with other errors"));
    assertTrue(page.contains("<dt>model</dt><dd>models/demo</dd>"));
    CorpusReport report = Reports.of(1, 1);
    String fewer =
        new CorpusReport(
                report.facts(), report.corpus(), report.failures().subList(0, 1), List.of())
            .html();
    assertTrue(fewer.contains("And 1 window with other errors."));
  }
}
