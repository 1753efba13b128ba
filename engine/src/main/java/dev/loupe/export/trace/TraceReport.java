package dev.loupe.export.trace;

import com.google.gson.stream.JsonWriter;
import dev.loupe.export.TerminalText;
import dev.loupe.export.figure.CircuitFigure;
import dev.loupe.generate.Token;
import dev.loupe.interpret.trace.Circuit;
import dev.loupe.interpret.trace.Circuit.Edge;
import dev.loupe.interpret.trace.Circuit.Place;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.Quantity;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.Trace.Effect;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.List;

/** A {@link Trace} for a terminal, as JSON, as a page and as a drawing. */
public final class TraceReport {
  private TraceReport() {}

  /** Sentences, no line longer than {@code columns}. */
  public static String text(Trace trace, int columns) {
    StringBuilder out = new StringBuilder();
    for (Sentence sentence : TraceWords.of(trace)) {
      String line = "";
      for (String word : TerminalText.safe(sentence.text()).split(" ", -1)) {
        String longer = line.isEmpty() ? word : line + " " + word;
        if (TerminalText.width(longer) > columns && !line.isEmpty()) {
          out.append(line).append('\n');
          longer = "  " + word;
        }
        line = longer;
      }
      out.append(TerminalText.fit(line, columns).stripTrailing()).append('\n');
    }
    return out.toString();
  }

  /** One object on one line, schema {@code loupe-trace/1}; what is not there is null. */
  public static String json(Trace trace) {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      write(trace, json);
    } catch (IOException e) {
      throw new UncheckedIOException(e); // a StringWriter has none
    }
    return out.toString();
  }

  /** A page of one file: without a script, and with a policy that lets it fetch nothing. */
  public static String html(Trace trace) {
    return new TracePage(trace).toString();
  }

  /**
   * The drawing of its circuit, a file of SVG.
   *
   * @throws IllegalArgumentException if it found no small circuit
   */
  public static String svg(Trace trace) {
    return TraceFigure.of(trace)
        .map(CircuitFigure::file)
        .orElseThrow(() -> new IllegalArgumentException("nothing to draw: " + trace.verdict()));
  }

  static void write(Trace trace, JsonWriter json) throws IOException {
    json.beginObject();
    json.name("schema").value("loupe-trace/1");
    json.name("model").value(trace.model().source());
    json.name("backend").value(trace.model().backend());
    json.name("position").value(trace.position());
    json.name("tokens").beginArray();
    for (Token token : trace.tokens()) {
      token(json, token.id(), token.label());
    }
    json.endArray();
    quantity(trace, json);
    json.name("ablation").value(trace.ablation().label());
    json.name("mlps").value(trace.mlps());
    json.name("nodes").beginArray();
    for (Effect effect : trace.effects()) {
      node(trace, effect, json);
    }
    json.endArray();
    json.name("edges").beginArray();
    if (trace.circuit().isPresent()) {
      edges(trace.circuit().get(), json);
    }
    json.endArray();
    faithfulness(trace, json);
    json.name("cuts").value(trace.cuts());
    json.name("seconds").value(trace.seconds());
    json.name("words").beginArray();
    for (Sentence sentence : TraceWords.of(trace)) {
      json.beginObject();
      json.name("basis").value(sentence.basis().label());
      json.name("text").value(sentence.text());
      json.name("number").value(sentence.number());
      json.endObject();
    }
    json.endArray();
    json.endObject();
  }

  static void token(JsonWriter json, int id, String label) throws IOException {
    json.beginObject();
    json.name("id").value(id);
    json.name("label").value(label);
    json.endObject();
  }

  private static void quantity(Trace trace, JsonWriter json) throws IOException {
    json.name("quantity").beginObject();
    quantity(trace.quantity(), json);
    json.name("value").value(trace.value());
    json.name("ablated").value(trace.ablated());
    json.endObject();
  }

  /** Which quantity, as members of an object. */
  static void quantity(Quantity quantity, JsonWriter json) throws IOException {
    json.name("kind").value(quantity.kind());
    token(json.name("token"), quantity.target(), quantity.label());
    json.name("against");
    if (quantity.against().isPresent()) {
      token(json, quantity.against().get().id(), quantity.against().get().label());
    } else {
      json.nullValue();
    }
  }

  private static void part(JsonWriter json, Part part) throws IOException {
    json.name("layer").value(part.layer());
    json.name("head");
    if (part.isMlp()) {
      json.value("mlp");
    } else {
      json.value(part.head());
    }
  }

  private static void node(Trace trace, Effect effect, JsonWriter json) throws IOException {
    Part part = effect.part();
    List<Place> places = trace.circuit().map(Circuit::places).orElse(List.of());
    json.beginObject();
    part(json, part);
    json.name("member").value(trace.circuit().filter(c -> c.members().contains(part)).isPresent());
    json.name("effect").beginObject();
    json.name("zero").value(effect.zero());
    json.name("mean").value(effect.mean());
    json.name("patched");
    if (Double.isNaN(effect.patched())) {
      json.nullValue();
    } else {
      json.value(effect.patched());
    }
    json.endObject();
    json.name("direct").value(effect.direct());
    json.name("positions").beginArray();
    for (Place place : places) {
      if (place.part().equals(part)) {
        json.beginObject();
        json.name("position").value(place.position());
        json.name("effect").value(place.effect());
        json.name("reads").value(place.key());
        json.name("weight").value(place.weight());
        json.endObject();
      }
    }
    json.endArray();
    json.endObject();
  }

  private static void edges(Circuit circuit, JsonWriter json) throws IOException {
    for (Edge edge : circuit.measured()) {
      json.beginObject();
      json.name("from").value(edge.from().label());
      json.name("to").value(edge.to().map(Part::label).orElse("logit"));
      json.name("via").value(edge.via().label());
      json.name("effect").value(edge.effect());
      json.name("kept").value(circuit.edges().contains(edge));
      json.endObject();
    }
  }

  private static void faithfulness(Trace trace, JsonWriter json) throws IOException {
    json.name("faithfulness").beginObject();
    json.name("of").value(trace.value() - trace.ablated());
    json.name("kept");
    if (trace.circuit().isPresent()) {
      json.value(trace.circuit().get().kept());
      json.name("kept_by_edges").value(trace.circuit().get().edgesKept());
    } else {
      json.nullValue();
      json.name("kept_by_edges").nullValue();
    }
    json.name("verdict").value(trace.verdict());
    json.endObject();
  }
}
