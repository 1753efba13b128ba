package dev.loupe.export.trace;

import dev.loupe.export.TerminalText;
import dev.loupe.export.figure.CircuitFigure;
import dev.loupe.export.figure.Svg;
import dev.loupe.export.page.ContentPolicy;
import dev.loupe.export.page.HtmlTable;
import dev.loupe.interpret.trace.Circuit;
import dev.loupe.interpret.trace.Circuit.Edge;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.Trace.Effect;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * A trace as a page of one file: the text, the circuit as a drawing, what it says in words, and the
 * effects of all parts. It has no script and fetches nothing.
 */
final class TracePage {
  private static final String STYLE =
      """
      .text bdi { border-radius: 3px; padding: 1px 2px; background: var(--raised); white-space: pre-wrap; }
      .text .at { outline: 2px solid var(--text); }
      .text .next { outline: 2px dashed var(--text); }
      .drawing { overflow-x: auto; margin: 16px 0; }
      .drawing svg { min-width: 640px; max-width: 100%; height: auto; }
      ol { padding-left: 24px; max-width: 80ch; }
      details { margin-top: 16px; }
      summary { cursor: pointer; min-height: 24px; }
      .effects td + td { text-align: right; }
      """;

  private final Trace trace;
  private final StringBuilder out = new StringBuilder();

  TracePage(Trace trace) {
    this.trace = trace;
  }

  private static String text(String untrusted) {
    return Svg.escape(TerminalText.safe(untrusted));
  }

  private static String token(String label) {
    return "<bdi>" + text(label) + "</bdi>";
  }

  @Override
  public String toString() {
    out.setLength(0);
    String style = Svg.pageStyle() + STYLE;
    String target = trace.quantity().label();
    out.append(
        """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta http-equiv="Content-Security-Policy" content="%s">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>Trace of %s</title>
        <link rel="icon" href="data:,">
        <style>%s</style>
        </head>
        <body>
        <main>
        <h1>Which heads make the model predict %s</h1>
        """
            .formatted(ContentPolicy.of(style), text(target), style, token(target)));
    tokens();
    TraceFigure.of(trace).map(CircuitFigure::inline).ifPresent(this::drawing);
    words();
    trace.circuit().ifPresent(this::edges);
    effects();
    facts();
    return out.append("</main>\n</body>\n</html>\n").toString();
  }

  private void tokens() {
    out.append("<p class=\"text\">");
    for (int i = 0; i < trace.tokens().size(); i++) {
      String kind = i == trace.position() ? "at" : i == trace.position() + 1 ? "next" : "";
      out.append("<bdi class=\"%s\" title=\"%d\">".formatted(kind, i));
      out.append(text(trace.tokens().get(i).label())).append("</bdi>\n");
    }
    out.append("</p>\n");
  }

  private void drawing(String svg) {
    out.append("<div class=\"drawing\">\n").append(svg).append("</div>\n");
    out.append(
        """
        <p class="muted">Lines: measured effect of a path; thicker is larger; q, k, v say whether the head reads it as
        query, key or value. Dashed: attention, which says nothing of what comes of it. The number under a head is the
        effect of replacing its output at that token alone.</p>
        """);
  }

  private void words() {
    out.append("<h2>In words</h2>\n<ol>\n");
    for (Sentence sentence : TraceWords.of(trace)) {
      out.append("<li>").append(text(sentence.text())).append("</li>\n");
    }
    out.append("</ol>\n");
  }

  private void edges(Circuit circuit) {
    out.append("<details>\n<summary>What members read from each other</summary>\n");
    HtmlTable.begin(out, "effects", "From", "To", "By", "Effect", "Kept");
    for (Edge edge : circuit.measured()) {
      HtmlTable.row(
          out,
          edge.from().label(),
          edge.to().map(Part::label).orElse("logits"),
          edge.via().label(),
          number(edge.effect()),
          circuit.edges().contains(edge) ? "yes" : "no");
    }
    HtmlTable.end(out);
    out.append("</details>\n");
  }

  private void effects() {
    out.append("<details>\n<summary>The effects of all parts</summary>\n");
    HtmlTable.begin(out, "effects", "Part", "Set to zero", "Set to its mean", "Patched", "Direct");
    List<Effect> all =
        trace.effects().stream()
            .sorted(Comparator.comparingDouble(effect -> -Math.abs(effect.of(trace.ablation()))))
            .toList();
    for (Effect effect : all) {
      HtmlTable.row(
          out,
          effect.part().label(),
          number(effect.zero()),
          number(effect.mean()),
          number(effect.patched()),
          number(effect.direct()));
    }
    HtmlTable.end(out);
    out.append("</details>\n");
  }

  private static String number(double value) {
    return Double.isNaN(value) ? "" : String.format(Locale.ROOT, "%+.3f", value).replace('-', '−');
  }

  private void facts() {
    out.append(
        "<p class=\"muted\">Model %s on %s. Replaced by: %s%s. %,d readings in %s s. Effects are in %s.</p>\n"
            .formatted(
                text(trace.model().source()),
                text(trace.model().backend()),
                trace.ablation().label(),
                trace.mlps() ? "; MLPs too" : "; MLPs run as they are",
                trace.cuts(),
                String.format(Locale.ROOT, "%.1f", trace.seconds()),
                trace.quantity().against().isPresent() ? "logits" : "nats"));
  }
}
