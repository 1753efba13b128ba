package dev.loupe.export.trace;

import dev.loupe.export.trace.Sentence.Basis;
import dev.loupe.interpret.trace.Ablation;
import dev.loupe.interpret.trace.Circuit;
import dev.loupe.interpret.trace.Circuit.Edge;
import dev.loupe.interpret.trace.Circuit.Place;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.Trace.Effect;
import dev.loupe.interpret.trace.Via;
import dev.loupe.text.Count;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/**
 * A trace in words. What a part does is said as what an intervention changed, and attention as
 * attention.
 */
public final class TraceWords {
  private static final int STRONGEST = 5; // parts that are named where there is no small circuit

  private static final double LEAST_NAMED = 0.1;

  private final Trace trace;
  private final List<Sentence> all = new ArrayList<>();

  private TraceWords(Trace trace) {
    this.trace = trace;
  }

  /** All that a trace says, in the order in which it is read. */
  public static List<Sentence> of(Trace trace) {
    TraceWords words = new TraceWords(trace);
    words.whole();
    trace.circuit().ifPresentOrElse(words::circuit, words::none);
    return List.copyOf(words.all);
  }

  private void say(Basis basis, double number, String text) {
    all.add(new Sentence(basis, text, number));
  }

  /** What replaces a part, after "with 4.0". */
  private String replaced() {
    return replaced(trace.ablation());
  }

  private static String replaced(Ablation ablation) {
    return switch (ablation) {
      case ZERO -> "set to zero";
      case MEAN -> "at its mean";
      case PATCH -> "as in the second text";
    };
  }

  private String token(int position) {
    return "token %d, %s".formatted(position, trace.tokens().get(position).label());
  }

  private String every() {
    return trace.mlps() ? "every head and MLP" : "every head";
  }

  private void whole() {
    say(
        Basis.READING,
        trace.value(),
        String.format(
            Locale.ROOT,
            "After %s, the %s is %.2f.",
            token(trace.position()),
            trace.quantity().words(),
            trace.value()));
    say(
        Basis.INTERVENTION,
        trace.ablated(),
        String.format(Locale.ROOT, "With %s %s it is %.2f.", every(), replaced(), trace.ablated()));
  }

  private void none() {
    Comparator<Effect> byEffect =
        Comparator.comparingDouble(effect -> -Math.abs(effect.of(trace.ablation())));
    say(
        Basis.INTERVENTION,
        trace.value() - trace.ablated(),
        String.format(
            Locale.ROOT,
            "%s.",
            trace.verdict().substring(0, 1).toUpperCase(Locale.ROOT)
                + trace.verdict().substring(1)));
    trace.effects().stream()
        .sorted(byEffect)
        .limit(STRONGEST)
        .forEach(effect -> changes(effect.part(), "", effect.of(trace.ablation())));
  }

  /** That a quantity changes where a part is replaced. */
  private void changes(Part part, String where, double effect) {
    say(
        Basis.INTERVENTION,
        effect,
        String.format(
            Locale.ROOT,
            "With %s %s%s, it %s by %.2f.",
            part.label(),
            replaced(),
            where,
            effect <= 0 ? "falls" : "rises",
            Math.abs(effect)));
  }

  private void circuit(Circuit circuit) {
    say(
        Basis.INTERVENTION,
        circuit.kept(),
        String.format(
            Locale.ROOT,
            "With %s but %s %s it is %.2f: %s %.0f%% of the effect.",
            every(),
            names(circuit.members()),
            replaced(),
            circuit.value(),
            circuit.members().size() == 1 ? "this one keeps" : "these keep",
            100 * circuit.kept()));
    List<Edge> named = named(circuit);
    named.forEach(this::edge);
    int others = circuit.edges().size() - named.size();
    if (others > 0) {
      double most =
          circuit.edges().stream()
              .filter(edge -> !named.contains(edge))
              .mapToDouble(edge -> Math.abs(edge.effect()))
              .max()
              .orElse(0);
      say(
          Basis.INTERVENTION,
          most,
          String.format(
              Locale.ROOT,
              "With a member %s in one of %s alone, it changes by at most %.2f.",
              replaced(),
              Count.of(others, "other link"),
              most));
    }
    say(
        Basis.INTERVENTION,
        circuit.edgesKept(),
        String.format(
            Locale.ROOT,
            "With all else %s, what they read from each other by %s alone keeps %.0f%% of the effect.",
            replaced(),
            circuit.edges().size() == 1
                ? "this link"
                : "these " + circuit.edges().size() + " links",
            100 * circuit.edgesKept()));
    for (Part part : circuit.members()) {
      trace.effects().stream()
          .filter(effect -> effect.part().equals(part))
          .forEach(effect -> changes(part, "", effect.of(trace.ablation())));
      circuit.places().stream().filter(place -> place.part().equals(part)).forEach(this::place);
    }
  }

  /** The links that are said and drawn: those of at least a tenth of the largest effect. */
  static List<Edge> named(Circuit circuit) {
    double largest =
        circuit.edges().stream().mapToDouble(edge -> Math.abs(edge.effect())).max().orElse(0);
    return circuit.edges().stream()
        .filter(edge -> Math.abs(edge.effect()) >= LEAST_NAMED * largest)
        .toList();
  }

  private static String names(List<Part> parts) {
    List<String> names = parts.stream().map(Part::label).collect(Collectors.toList());
    if (names.size() == 1) {
      return names.getFirst();
    }
    String last = names.removeLast();
    return String.join(", ", names) + " and " + last;
  }

  private void place(Place place) {
    changes(place.part(), " at %s alone".formatted(token(place.position())), place.effect());
    if (!place.part().isMlp()) {
      say(
          Basis.ATTENTION,
          place.weight(),
          String.format(
              Locale.ROOT,
              "There, %.0f%% of the attention of %s goes to %s.",
              100 * place.weight(),
              place.part().label(),
              token(place.key())));
    }
  }

  private void edge(Edge edge) {
    String where =
        switch (edge.via()) {
          case QUERY -> " in the queries of %s alone";
          case KEY -> " in the keys of %s alone";
          case VALUE -> " in the values of %s alone";
          case MLP -> " in what %s reads alone";
          case LOGIT -> " on the path straight to the logits alone";
        };
    String to = edge.to().map(Part::label).orElse("");
    changes(edge.from(), edge.via() == Via.LOGIT ? where : where.formatted(to), edge.effect());
  }
}
