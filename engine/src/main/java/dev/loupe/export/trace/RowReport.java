package dev.loupe.export.trace;

import com.google.gson.stream.JsonWriter;
import dev.loupe.export.TerminalText;
import dev.loupe.interpret.RowNumbers;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Locale;

/** The {@link RowNumbers} of a row for a terminal, as JSON and as CSV. */
public final class RowReport {
  private RowReport() {}

  /** A table, no line longer than {@code columns}. */
  public static String text(RowNumbers row, int columns) {
    StringBuilder out = new StringBuilder();
    line(
        out,
        columns,
        String.format(
            Locale.ROOT,
            "Head %d.%d, row of token %d, %s: q . k times %.4g is the score. Logit of %s.",
            row.layer(),
            row.head(),
            row.query(),
            row.tokens().get(row.query()).label(),
            row.scale(),
            row.label()));
    line(out, columns, "   key  token            score   weight    |v|   |added|   logit");
    for (RowNumbers.Key key : row.keys()) {
      line(
          out,
          columns,
          String.format(
              Locale.ROOT,
              "%6d  %s %8.3f  %6.1f%%  %5.2f  %8.3f  %+6.3f",
              key.position(),
              TerminalText.fit(row.tokens().get(key.position()).label(), 13),
              key.score(),
              100 * key.weight(),
              key.valueNorm(),
              key.writtenNorm(),
              key.direct()));
    }
    int masked = row.tokens().size() - row.keys().size();
    line(
        out,
        columns,
        String.format(
            Locale.ROOT,
            "All of them: %+.3f to the logit.%s",
            row.direct(),
            masked == 0
                ? ""
                : " Masked: tokens %d to %d.".formatted(row.query() + 1, row.query() + masked)));
    return out.toString();
  }

  private static void line(StringBuilder out, int columns, String line) {
    out.append(TerminalText.fit(line, columns).stripTrailing()).append('\n');
  }

  /** One object on one line, schema {@code loupe-row/1}. */
  public static String json(RowNumbers row) {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value("loupe-row/1");
      json.name("model").value(row.model().source());
      json.name("backend").value(row.model().backend());
      json.name("layer").value(row.layer());
      json.name("head").value(row.head());
      json.name("query").value(row.query());
      json.name("scale").value(row.scale());
      numbers(json.name("q"), row.q());
      json.name("keys").beginArray();
      for (RowNumbers.Key key : row.keys()) {
        json.beginObject();
        json.name("position").value(key.position());
        json.name("id").value(row.tokens().get(key.position()).id());
        json.name("label").value(row.tokens().get(key.position()).label());
        numbers(json.name("products"), key.products());
        json.name("score").value(key.score());
        json.name("weight").value(key.weight());
        json.name("value_norm").value(key.valueNorm());
        json.name("added_norm").value(key.writtenNorm());
        json.name("direct").value(key.direct());
        json.endObject();
      }
      json.endArray();
      json.name("masked").beginArray();
      for (int t = row.query() + 1; t < row.tokens().size(); t++) {
        json.value(t);
      }
      json.endArray();
      json.name("log_sum_exp").value(row.logSumExp());
      numbers(json.name("output"), row.output());
      numbers(json.name("added"), row.written());
      json.name("target").beginObject();
      json.name("id").value(row.target());
      json.name("label").value(row.label());
      json.name("direct").value(row.direct());
      json.endObject();
      json.endObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e); // a StringWriter has none
    }
    return out.toString();
  }

  private static void numbers(JsonWriter json, List<Double> values) throws IOException {
    json.beginArray();
    for (double value : values) {
      json.value(value);
    }
    json.endArray();
  }

  /** {@code position,id,score,weight,value_norm,added_norm,direct,qk_0,qk_1,...}: a line a key. */
  public static String csv(RowNumbers row) {
    StringBuilder out = new StringBuilder("position,id,score,weight,value_norm,added_norm,direct");
    for (int d = 0; d < row.q().size(); d++) {
      out.append(",qk_").append(d);
    }
    out.append('\n');
    for (RowNumbers.Key key : row.keys()) {
      out.append(key.position()).append(',').append(row.tokens().get(key.position()).id());
      out.append(',').append(key.score()).append(',').append(key.weight());
      out.append(',').append(key.valueNorm()).append(',').append(key.writtenNorm());
      out.append(',').append(key.direct());
      key.products().forEach(product -> out.append(',').append(product));
      out.append('\n');
    }
    return out.toString();
  }
}
