package dev.loupe.export.trace;

import dev.loupe.export.TerminalText;
import dev.loupe.export.figure.CircuitFigure;
import dev.loupe.export.figure.CircuitFigure.Link;
import dev.loupe.export.figure.CircuitFigure.Node;
import dev.loupe.export.figure.CircuitFigure.Read;
import dev.loupe.generate.Token;
import dev.loupe.interpret.trace.Circuit;
import dev.loupe.interpret.trace.Circuit.Edge;
import dev.loupe.interpret.trace.Circuit.Place;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.Via;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/**
 * The circuit of a trace as a drawing: a node for each place at which a member's output counts, a
 * line for each edge that is named, and a thin dashed one to the token that a head attends to most
 * there.
 */
final class TraceFigure {
  private final Trace trace;
  private final Circuit circuit;
  private final List<Integer> positions;
  private final List<Integer> layers;

  private TraceFigure(Trace trace, Circuit circuit) {
    this.trace = trace;
    this.circuit = circuit;
    Set<Integer> columns = new TreeSet<>();
    columns.add(trace.position());
    Set<Integer> rows = new TreeSet<>();
    for (Place place : circuit.places()) {
      columns.add(place.position());
      columns.add(place.key());
      rows.add(place.part().layer());
    }
    positions = List.copyOf(columns);
    layers = List.copyOf(rows);
  }

  /** Empty where there is no small circuit, or none of its members has a place of its own. */
  static Optional<CircuitFigure> of(Trace trace) {
    return trace
        .circuit()
        .filter(circuit -> !circuit.places().isEmpty())
        .map(circuit -> new TraceFigure(trace, circuit).figure());
  }

  private CircuitFigure figure() {
    return new CircuitFigure(
        "The circuit of " + safe(trace.quantity().label()),
        positions.stream().map(this::token).toList(),
        layers.stream().map(layer -> "layer " + layer).toList(),
        "predicts " + safe(trace.quantity().label()),
        circuit.places().stream().map(this::node).toList(),
        links(),
        reads());
  }

  private static String safe(String label) {
    return TerminalText.safe(label);
  }

  private String token(int position) {
    Token token = trace.tokens().get(position);
    return safe(token.label()) + " " + position;
  }

  private static String number(double effect) {
    return String.format(Locale.ROOT, "%+.2f", effect).replace('-', '−');
  }

  private Node node(Place place) {
    String part = place.part().label();
    return new Node(
        layers.indexOf(place.part().layer()),
        positions.indexOf(place.position()),
        "%s@%d>%d".formatted(part, place.position(), place.key()),
        part,
        number(place.effect()),
        "%s at %s: effect %s".formatted(part, token(place.position()), number(place.effect())));
  }

  private List<Read> reads() {
    List<Read> reads = new ArrayList<>();
    for (int i = 0; i < circuit.places().size(); i++) {
      Place place = circuit.places().get(i);
      if (!place.part().isMlp()) {
        String tip =
            String.format(
                Locale.ROOT,
                "%.0f%% of the attention of %s at %s goes to %s",
                100 * place.weight(),
                place.part().label(),
                token(place.position()),
                token(place.key()));
        reads.add(new Read(i, positions.indexOf(place.key()), tip));
      }
    }
    return reads;
  }

  private List<Link> links() {
    double largest =
        circuit.edges().stream().mapToDouble(edge -> Math.abs(edge.effect())).max().orElse(1);
    Set<Link> links = new LinkedHashSet<>();
    for (Edge edge : TraceWords.named(circuit)) {
      List<Integer> from = places(edge.from());
      List<Integer> to = edge.to().map(this::places).orElse(List.of(CircuitFigure.TOP));
      if (from.isEmpty() || to.isEmpty()) {
        continue; // a member without a place of its own: the words have its edge
      }
      List<Link> met = new ArrayList<>();
      for (int reader : to) {
        for (int read : from) {
          if (circuit.places().get(read).position() == wanted(edge.via(), reader)) {
            met.add(link(edge, read, reader, largest));
          }
        }
      }
      links.addAll(
          met.isEmpty() ? List.of(link(edge, strongest(from), strongest(to), largest)) : met);
    }
    return List.copyOf(links);
  }

  /** Where the output of another part must be for a place to read it so. */
  private int wanted(Via via, int reader) {
    if (reader == CircuitFigure.TOP) {
      return trace.position();
    }
    Place place = circuit.places().get(reader);
    return via == Via.KEY || via == Via.VALUE ? place.key() : place.position();
  }

  private List<Integer> places(Part part) {
    List<Integer> places = new ArrayList<>();
    for (int i = 0; i < circuit.places().size(); i++) {
      if (circuit.places().get(i).part().equals(part)) {
        places.add(i);
      }
    }
    return places;
  }

  private int strongest(List<Integer> places) {
    int best = places.getFirst();
    for (int place : places) {
      if (place >= 0 && effect(place) > effect(best)) {
        best = place;
      }
    }
    return best;
  }

  private double effect(int place) {
    return Math.abs(circuit.places().get(place).effect());
  }

  private static Link link(Edge edge, int from, int to, double largest) {
    String by =
        switch (edge.via()) {
          case QUERY -> "s1";
          case KEY -> "s0";
          case VALUE -> "s2";
          case MLP -> "s3";
          case LOGIT -> "s5";
        };
    String label = edge.via() == Via.LOGIT || edge.via() == Via.MLP ? "" : edge.via().label();
    String reader = edge.to().map(Part::label).orElse("logit");
    return new Link(
        from,
        to,
        by,
        label,
        Math.abs(edge.effect()) / Math.max(largest, Double.MIN_NORMAL),
        "%s>%s.%s".formatted(edge.from().label(), reader, edge.via().label()),
        new EdgeWords(edge) + ": effect " + number(edge.effect()));
  }

  /** A path in words: from whom, to whom, by what. */
  private record EdgeWords(Edge edge) {
    @Override
    public String toString() {
      String from = edge.from().label();
      String to = edge.to().map(Part::label).orElse("");
      return switch (edge.via()) {
        case QUERY -> from + " in the queries of " + to;
        case KEY -> from + " in the keys of " + to;
        case VALUE -> from + " in the values of " + to;
        case MLP -> from + " in what " + to + " reads";
        case LOGIT -> from + " straight to the logits";
      };
    }
  }
}
