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
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.MathContext;
import java.util.List;
import java.util.Map;

/** A report as JSON; see {@link CorpusReport#json}. */
final class CorpusJson {
  private final JsonWriter json;

  private CorpusJson(JsonWriter json) {
    this.json = json;
  }

  static String write(CorpusReport report) {
    StringWriter text = new StringWriter();
    try (JsonWriter json = new JsonWriter(text)) {
      json.setHtmlSafe(false);
      new CorpusJson(json).all(report);
    } catch (IOException e) { // a StringWriter throws none
      throw new UncheckedIOException(e);
    }
    return inert(text.append('\n').toString());
  }

  /**
   * Control and direction characters and halves of pairs, which are only in strings, as escapes.
   */
  private static String inert(String json) {
    StringBuilder out = new StringBuilder(json.length());
    json.codePoints()
        .forEach(
            c -> {
              int type = Character.getType(c);
              if (c >= 0x7f
                  && (type == Character.CONTROL
                      || type == Character.FORMAT
                      || type == Character.SURROGATE)) {
                for (char half : Character.toChars(c)) {
                  out.append("\\u%04x".formatted((int) half));
                }
              } else {
                out.appendCodePoint(c);
              }
            });
    return out.toString();
  }

  /** Six digits: more than a corpus makes sure of. */
  static double rounded(double value) {
    return rounded(value, 6);
  }

  static double rounded(double value, int digits) {
    return new BigDecimal(value).round(new MathContext(digits)).doubleValue();
  }

  private void all(CorpusReport report) throws IOException {
    json.beginObject();
    json.name("schema").value("loupe-corpus/1");
    json.name("run").beginObject();
    for (Map.Entry<String, Object> fact : report.facts().entrySet()) {
      json.name(fact.getKey());
      switch (fact.getValue()) {
        case Number number -> json.value(number);
        case Boolean is -> json.value(is);
        default -> json.value(fact.getValue().toString());
      }
    }
    json.endObject();
    Corpus corpus = report.corpus();
    json.name("documents").value(corpus.documents());
    json.name("windows").value(corpus.windows());
    json.name("failed_windows").value(corpus.failedWindows());
    json.name("tokens").value(corpus.tokens());
    json.name("perplexity");
    if (corpus.perplexity().isPresent()) {
      perplexity(corpus.perplexity().get());
    } else {
      json.nullValue();
    }
    json.name("failures").beginArray();
    for (Failure failure : report.failures()) {
      failure(failure);
    }
    json.endArray();
    json.name("heads").beginArray();
    for (Head head : report.heads()) {
      head(head);
    }
    json.endArray();
    json.endObject();
  }

  private void perplexity(Perplexity perplexity) throws IOException {
    json.beginObject();
    number("corpus", perplexity.corpus());
    json.name("tokens").value(perplexity.tokens());
    json.name("documents").beginObject();
    distribution(perplexity.documents());
    json.endObject();
    documents("highest", perplexity.highest());
    documents("lowest", perplexity.lowest());
    json.endObject();
  }

  private void documents(String name, List<Document> documents) throws IOException {
    json.name(name).beginArray();
    for (Document document : documents) {
      json.beginObject();
      json.name("doc_id").value(document.docId());
      json.name("windows").value(document.windows());
      json.name("n_tokens").value(document.tokens());
      number("perplexity", document.perplexity());
      json.endObject();
    }
    json.endArray();
  }

  private void failure(Failure failure) throws IOException {
    json.beginObject();
    json.name("error").value(failure.error());
    json.name("windows").value(failure.windows());
    json.name("examples").beginArray();
    for (Place place : failure.examples()) {
      json.beginObject();
      json.name("doc_id").value(place.docId());
      json.name("window").value(place.window());
      json.endObject();
    }
    json.endArray();
    json.endObject();
  }

  private void head(Head head) throws IOException {
    json.beginObject();
    json.name("layer").value(head.layer());
    json.name("head").value(head.head());
    json.name("scores").beginObject();
    for (Map.Entry<HeadScore, Score> each : head.scores().entrySet()) {
      json.name(each.getKey().key()).beginObject();
      distribution(each.getValue().distribution());
      windows("lowest", each.getValue().lowest());
      windows("highest", each.getValue().highest());
      json.endObject();
    }
    json.endObject();
    json.endObject();
  }

  private void windows(String name, List<Window> windows) throws IOException {
    json.name(name).beginArray();
    for (Window window : windows) {
      json.beginObject();
      json.name("doc_id").value(window.docId());
      json.name("window").value(window.window());
      json.name("n_tokens").value(window.tokens());
      number("value", window.value());
      json.endObject();
    }
    json.endArray();
  }

  private void distribution(Quantiles d) throws IOException {
    json.name("count").value(d.count());
    number("mean", d.mean());
    number("sd", d.sd());
    number("min", d.min());
    number("p5", d.p5());
    number("p25", d.p25());
    number("p50", d.p50());
    number("p75", d.p75());
    number("p95", d.p95());
    number("max", d.max());
  }

  private void number(String name, double value) throws IOException {
    json.name(name);
    if (Double.isFinite(value)) {
      json.value(rounded(value));
    } else {
      json.nullValue();
    }
  }
}
