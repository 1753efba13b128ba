package dev.loupe.corpus;

import com.google.gson.stream.JsonWriter;
import dev.loupe.attention.HeadScore;
import dev.loupe.corpus.CorpusReport.Corpus;
import dev.loupe.corpus.CorpusReport.Document;
import dev.loupe.corpus.CorpusReport.Failure;
import dev.loupe.corpus.CorpusReport.Head;
import dev.loupe.corpus.CorpusReport.Perplexity;
import dev.loupe.corpus.CorpusReport.Place;
import dev.loupe.corpus.CorpusReport.Score;
import dev.loupe.corpus.CorpusReport.Window;
import dev.loupe.export.TerminalText;
import dev.loupe.export.figure.Svg;
import dev.loupe.export.page.ContentPolicy;
import dev.loupe.export.page.HtmlTable;
import dev.loupe.export.page.PageModules;
import dev.loupe.export.page.Palette;
import dev.loupe.text.Count;
import java.io.IOException;
import java.io.InputStream;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;

/**
 * A report as a page for a browser. What is said of documents is there without a script; heads are
 * data that the page's script draws. Names come from the corpus: where they are shown, characters
 * that act on their surroundings are written out.
 */
final class CorpusPage {
  private final CorpusReport report;
  private final StringBuilder out = new StringBuilder();

  CorpusPage(CorpusReport report) {
    this.report = report;
  }

  @Override
  public String toString() {
    out.setLength(0);
    String style = Svg.pageStyle() + resource("corpus.css");
    String script = PageModules.inline(resource("corpus.js"));
    out.append(
        """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta http-equiv="Content-Security-Policy" content="%s">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>Heads over a corpus</title>
        <link rel="icon" href="data:,">
        <style>%s</style>
        </head>
        <body>
        <main>
        <h1>Heads over a corpus</h1>
        """
            .formatted(ContentPolicy.of(script, style), style));
    headline();
    heads();
    documents();
    failures();
    facts();
    out.append("</main>\n");
    if (!report.heads().isEmpty()) {
      out.append("<script type=\"application/json\" id=\"data\">");
      out.append(data()).append("</script>\n<script>").append(script).append("</script>\n");
    }
    out.append("</body>\n</html>\n");
    return out.toString();
  }

  private static String resource(String name) {
    try (InputStream in =
        Objects.requireNonNull(CorpusPage.class.getResourceAsStream(name), name)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  // ---- words

  /**
   * With what acts on its surroundings written out, and no halves of pairs, which no file holds.
   */
  private static String inert(String untrusted) {
    return TerminalText.safe(untrusted).replaceAll("\\p{Cs}", "\uFFFD");
  }

  private static String text(String untrusted) {
    return Svg.escape(inert(untrusted));
  }

  private static String name(String docId) {
    return "<bdi>" + text(docId) + "</bdi>";
  }

  private static String count(long n) {
    return String.format(Locale.ROOT, "%,d", n);
  }

  /** Three digits, and all of what is before the point. */
  private static String number(double value) {
    if (!Double.isFinite(value)) {
      return "too large";
    }
    if (Math.abs(value) >= 1e9) {
      return String.format(Locale.ROOT, "%.2e", value);
    }
    return Math.abs(value) >= 1000
        ? count(Math.round(value))
        : new BigDecimal(value).round(new MathContext(3)).toPlainString();
  }

  private void headline() {
    Corpus corpus = report.corpus();
    out.append("<p class=\"headline\">").append(Count.grouped(corpus.documents(), "document"));
    out.append(" in ").append(Count.grouped(corpus.windows(), "window")).append(", ");
    out.append(Count.grouped(corpus.tokens(), "token")).append(". ");
    corpus
        .perplexity()
        .ifPresent(
            p ->
                out.append("Perplexity %s over all tokens".formatted(number(p.corpus())))
                    .append(
                        p.documents().count() < 4
                            ? ". "
                            : "; of half of the documents from %s to %s. "
                                .formatted(
                                    number(p.documents().p25()), number(p.documents().p75()))));
    if (corpus.failedWindows() == 0) {
      out.append("No window failed.</p>\n");
    } else {
      out.append(
          "<a href=\"#failures\" class=\"warning\">%s failed.</a></p>\n"
              .formatted(Count.grouped(corpus.failedWindows(), "window")));
    }
  }

  // ---- heads

  private void heads() {
    out.append("<section id=\"heads\">\n<h2>Heads</h2>\n");
    if (report.scores().isEmpty()) {
      out.append("<p>There are no statistics of heads.</p>\n</section>\n");
      return;
    }
    out.append(
        """
        <noscript><p>Heads are drawn by this page's own script, and scripts are switched off here.</p></noscript>
        <div id="drawn" hidden>
        <p><label>Score <select id="score">
        """);
    for (HeadScore score : report.scores()) {
      out.append("<option value=\"%s\">%s</option>\n".formatted(score.key(), title(score)));
    }
    out.append(
        """
        </select></label> <span id="about" class="muted"></span></p>
        <div class="columns">
        <div>
        <h3 id="grid-name">Layers down, heads across</h3>
        <table id="grid" role="grid" aria-labelledby="grid-name"></table>
        <p id="ramp" class="muted"><span id="from"></span><span id="colours"></span><span id="to"></span></p>
        <p class="muted screen">A click or the arrow keys choose a head.</p>
        </div>
        <div id="chosen">
        <h3 id="head-name" aria-live="polite"></h3>
        <div class="table"><table id="scores" class="spreads"></table></div>
        <p class="muted">Bars from 5 % to 95 % of the windows, boxes from 25 % to 75 %, lines at the median; each score from 0 to the largest of all heads.</p>
        <div id="outliers"></div>
        </div>
        </div>
        <h3 id="table-name"></h3>
        <div class="table scroll" tabindex="0" role="region" aria-labelledby="table-name"><table id="table" class="spreads"></table></div>
        <p id="cut" class="muted"></p>
        </div>
        </section>
        """);
  }

  private static String title(HeadScore score) {
    return switch (score) {
      case ENTROPY -> "Entropy, nats";
      case NORMALISED_ENTROPY -> "Entropy, part of the largest";
      case MEAN_DISTANCE -> "Mean distance, tokens";
      case FIRST_TOKEN -> "First token";
      case SELF -> "Self";
      case PREVIOUS_TOKEN -> "Previous token";
      case DUPLICATE_TOKEN -> "Duplicate token";
      case INDUCTION -> "Induction";
      case WEIGHTED_NORM -> "Norm of what it adds";
      case FIRST_TOKEN_BY_NORM -> "First token by norm";
    };
  }

  private static String about(HeadScore score) {
    return switch (score) {
      case ENTROPY -> "how widely attention is spread, 0 for a single token";
      case NORMALISED_ENTROPY -> "1 where all tokens are read alike";
      case MEAN_DISTANCE -> "how far back it reads";
      case FIRST_TOKEN -> "attention to the first token";
      case SELF -> "attention to the token itself";
      case PREVIOUS_TOKEN -> "attention to the token just before";
      case DUPLICATE_TOKEN -> "attention to earlier copies of the same token";
      case INDUCTION -> "attention to what came after earlier copies of the same token";
      case WEIGHTED_NORM -> "length of what is added to the residual stream";
      case FIRST_TOKEN_BY_NORM -> "part that the first token has in the norm";
    };
  }

  /**
   * For the script: of each score a list of heads, each {@code [layer, head, count, mean, sd, min,
   * p5, p25, p50, p75, p95, max, lowest, highest]}, the last two as document, window, tokens and
   * value in turn; documents are numbers of {@code documents}.
   */
  private String data() {
    Map<String, Integer> documents = new LinkedHashMap<>();
    StringWriter text = new StringWriter();
    try (JsonWriter json = new JsonWriter(text)) {
      json.setHtmlSafe(true); // < > & as \\u003c ..., so that no name can end the block
      json.beginObject();
      json.name("palettes").beginArray();
      for (Palette palette : List.of(Palette.SEQUENTIAL_LIGHT, Palette.SEQUENTIAL_DARK)) {
        json.beginArray();
        for (String stop : palette.stops()) {
          json.value(stop);
        }
        json.endArray();
      }
      json.endArray();
      json.name("scores").beginObject();
      for (HeadScore score : report.scores()) {
        json.name(score.key()).beginObject();
        json.name("title").value(title(score));
        json.name("about").value(about(score));
        json.name("heads").beginArray();
        for (Head head : report.heads()) {
          Score values = head.scores().get(score);
          if (values != null) {
            json.beginArray().value(head.layer()).value(head.head());
            distribution(json, values.distribution());
            windows(json, values.lowest(), documents);
            windows(json, values.highest(), documents);
            json.endArray();
          }
        }
        json.endArray();
        json.endObject();
      }
      json.endObject();
      json.name("documents").beginArray();
      for (String docId : documents.keySet()) {
        json.value(inert(docId));
      }
      json.endArray();
      json.endObject();
    } catch (IOException e) { // a StringWriter throws none
      throw new UncheckedIOException(e);
    }
    return text.toString();
  }

  private static void distribution(JsonWriter json, Quantiles d) throws IOException {
    json.value(d.count());
    for (double value :
        new double[] {
          d.mean(), d.sd(), d.min(), d.p5(), d.p25(), d.p50(), d.p75(), d.p95(), d.max()
        }) {
      json.value(CorpusJson.rounded(value, 4));
    }
  }

  private static void windows(JsonWriter json, List<Window> windows, Map<String, Integer> documents)
      throws IOException {
    json.beginArray();
    for (Window window : windows) {
      int document = documents.computeIfAbsent(window.docId(), _ -> documents.size());
      json.value(document).value(window.window()).value(window.tokens());
      json.value(CorpusJson.rounded(window.value(), 4));
    }
    json.endArray();
  }

  // ---- documents

  private void documents() {
    out.append("<section id=\"documents\">\n<h2>Documents by perplexity</h2>\n");
    if (report.corpus().perplexity().isEmpty()) {
      out.append("<p>There are no perplexities.</p>\n</section>\n");
      return;
    }
    Perplexity all = report.corpus().perplexity().get();
    Quantiles d = all.documents();
    out.append(
        "<p>Over all %s: %s. "
            .formatted(Count.grouped(all.tokens(), "token"), number(all.corpus())));
    out.append(
        "Over %s: mean %s, standard deviation %s; lowest %s, 5&nbsp;%% %s, median %s, 95&nbsp;%% %s, highest %s.</p>\n"
            .formatted(
                Count.grouped(d.count(), "document"),
                number(d.mean()),
                number(d.sd()),
                number(d.min()),
                number(d.p5()),
                number(d.p50()),
                number(d.p95()),
                number(d.max())));
    out.append("<p class=\"muted\">The first token of a window is predicted from nothing and does")
        .append(" not count; the windows of a document count together.</p>\n");
    out.append("<div class=\"columns even\">\n");
    documents("Highest", all.highest());
    documents("Lowest", all.lowest());
    out.append("</div>\n</section>\n");
  }

  private void documents(String heading, List<Document> documents) {
    out.append("<div>\n<h3>").append(heading).append("</h3>\n");
    HtmlTable.begin(out, "list", "document", "windows", "tokens", "perplexity");
    for (Document each : documents) {
      HtmlTable.row(
          out,
          name(each.docId()),
          count(each.windows()),
          count(each.tokens()),
          number(each.perplexity()));
    }
    HtmlTable.end(out);
    out.append("</div>\n");
  }

  private void failures() {
    long failed = report.corpus().failedWindows();
    if (failed == 0) {
      return;
    }
    out.append("<section id=\"failures\">\n<h2>What failed</h2>\n");
    HtmlTable.begin(out, "list", "error", "windows", "for example");
    long listed = 0;
    for (Failure failure : report.failures()) {
      listed += failure.windows();
      StringBuilder examples = new StringBuilder();
      for (Place place : failure.examples()) {
        examples.append(examples.isEmpty() ? "" : "<br>").append(name(place.docId()));
        examples.append(" window ").append(place.window());
      }
      HtmlTable.row(out, text(failure.error()), count(failure.windows()), examples.toString());
    }
    HtmlTable.end(out);
    if (listed < failed) {
      out.append(
          "<p>And %s with other errors.</p>\n".formatted(Count.grouped(failed - listed, "window")));
    }
    out.append("</section>\n");
  }

  private void facts() {
    if (report.facts().isEmpty()) {
      return;
    }
    out.append("<section id=\"run\">\n<h2>The run</h2>\n<dl>\n");
    report
        .facts()
        .forEach(
            (key, value) ->
                out.append(
                    "<dt>%s</dt><dd>%s</dd>\n".formatted(text(key), text(value.toString()))));
    out.append("</dl>\n</section>\n");
  }
}
