package dev.loupe.interpret.trace;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Token;
import dev.loupe.interpret.trace.Circuit.Edge;
import dev.loupe.interpret.trace.Circuit.Link;
import dev.loupe.interpret.trace.Circuit.Place;
import dev.loupe.interpret.trace.Experiment.Question;
import dev.loupe.interpret.trace.Trace.Effect;
import dev.loupe.interpret.trace.TraceListener.Phase;
import dev.loupe.text.Count;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.CancellationException;
import java.util.stream.Stream;

/** Measures a {@link Trace}. */
final class Tracer implements AutoCloseable {
  /** A part whose loss lowers the quantity by less does not count: a thousandth of a nat. */
  private static final double LEAST_EFFECT = 1e-3;

  /** All parts together that raise the quantity by less leave nothing to explain: half a nat. */
  static final double LEAST_TOTAL = 0.5;

  /** Of what the members keep, what the links keep by which they read each other. */
  static final double LINKS_KEEP = 0.75;

  private final OpenModel open;
  private final TraceRequest request;
  private final TraceEffort effort;
  private final Experiment experiment;
  private final Replacements replacements;
  private final Paths paths;
  private final List<Part> parts;
  private final List<Part> always; // in every circuit: MLPs that run as they are
  private Phase phase = Phase.EFFECTS;
  private long done;
  private double ablated;

  private Tracer(OpenModel open, TraceRequest request, Question question) {
    this.open = open;
    this.request = request;
    Gpt2Config config = open.config();
    parts = Part.all(config);
    always = request.mlps() ? List.of() : parts.stream().filter(Part::isMlp).toList();
    effort = effort(config, request, question);
    experiment = new Experiment(open, question, this::done);
    CutRunner runner = experiment.runner();
    replacements = new Replacements(request.ablation(), runner.clean(), experiment.other());
    paths = new Paths(config, replacements, runner, new HeadMath(open.checkpoint()));
  }

  private static Question question(OpenModel model, TraceRequest request) {
    return Question.of(
        model,
        request.prompt(),
        request.at(),
        request.target(),
        request.against(),
        request.patch());
  }

  private static TraceEffort effort(Gpt2Config config, TraceRequest request, Question question) {
    return TraceEffort.of(config, question.ids().length, request);
  }

  static TraceEffort effort(OpenModel model, TraceRequest request) {
    return effort(model.config(), request, question(model, request));
  }

  static Trace trace(OpenModel model, TraceRequest request) {
    Question question = question(model, request);
    int shown = Math.min(question.all().length, question.ids().length + 1);
    List<Token> tokens =
        Token.of(model.tokenizer(), request.prompt(), Arrays.copyOf(question.all(), shown));
    return model.onFiles(
        () -> {
          try (Tracer tracer = new Tracer(model, request, question)) {
            return tracer.trace(tokens);
          }
        });
  }

  /** See {@link Trace#kept}. */
  static double kept(OpenModel model, TraceRequest request, List<Link> links) {
    Question question = question(model, request);
    return model.onFiles(
        () -> {
          try (Tracer tracer = new Tracer(model, request, question)) {
            tracer.measureAblated();
            TreeSet<Part> members = new TreeSet<>();
            links.forEach(link -> members.add(link.from()));
            links.forEach(link -> link.to().ifPresent(members::add));
            List<Link> fixed = tracer.fixed(List.copyOf(members));
            List<Link> all = Stream.concat(fixed.stream(), links.stream()).distinct().toList();
            return tracer.shares(List.of(tracer.paths.alone(all)))[0];
          }
        });
  }

  private void measureAblated() {
    ablated = experiment.values(List.of(alone(List.of())))[0];
  }

  private void done(long rows) {
    done += rows;
    long total = effort.layerRows();
    if (!request.listener().tracing(phase, Math.min(done, total), total)) {
      throw new CancellationException("the trace was ended");
    }
  }

  /** What the phases before this one did not need counts as done. */
  private void begin(Phase next, long before) {
    phase = next;
    done = Math.max(done, before);
  }

  private Trace trace(List<Token> tokens) {
    long start = System.nanoTime();
    List<Effect> effects = effects();
    begin(Phase.SEARCH, effort.effects());
    measureAblated();
    Search search = search(strongest(effects));
    Optional<Circuit> circuit = search.members.map(found -> circuit(found, search.kept));
    return new Trace(
        open.info(),
        tokens,
        experiment.tokens() - 1,
        experiment.quantity(),
        experiment.value(),
        request.ablation(),
        request.mlps(),
        ablated,
        effects,
        circuit,
        search.verdict,
        experiment.cuts(),
        (System.nanoTime() - start) / 1e9);
  }

  private List<Effect> effects() {
    Recording clean = experiment.runner().clean();
    Recording other = experiment.other();
    double[] zero = experiment.effects(parts, new Replacements(Ablation.ZERO, clean, null));
    double[] mean = experiment.effects(parts, new Replacements(Ablation.MEAN, clean, null));
    double[] patched = new double[parts.size()];
    Arrays.fill(patched, Double.NaN);
    if (other != null) {
      patched = experiment.effects(parts, new Replacements(Ablation.PATCH, clean, other));
    }
    double[] direct = experiment.effects(parts.stream().map(paths::toLogits).toList());
    List<Effect> effects = new ArrayList<>();
    for (int i = 0; i < parts.size(); i++) {
      effects.add(new Effect(parts.get(i), zero[i], mean[i], patched[i], direct[i]));
    }
    return effects;
  }

  /** Those that may be members, in the order in which the quantity falls without them. */
  private List<Part> strongest(List<Effect> effects) {
    return effects.stream()
        .filter(effect -> !always.contains(effect.part()))
        .filter(effect -> effect.of(request.ablation()) <= -LEAST_EFFECT)
        .sorted(Comparator.comparingDouble(effect -> effect.of(request.ablation())))
        .limit(CircuitSearch.widest(request.most()))
        .map(Effect::part)
        .toList();
  }

  /** The model with all parts replaced but some, and those that run as they are. */
  private Cut alone(List<Part> members) {
    List<Cut.Change> changes = new ArrayList<>();
    for (Part part : parts) {
      if (!members.contains(part) && !always.contains(part)) {
        changes.add(Cut.change(part, replacements.of(part), 0, experiment.tokens()));
      }
    }
    return new Cut(changes);
  }

  private double[] shares(List<Cut> all) {
    double total = experiment.value() - ablated;
    return Arrays.stream(experiment.values(all)).map(each -> (each - ablated) / total).toArray();
  }

  private double value(double share) {
    return ablated + share * (experiment.value() - ablated);
  }

  private record Search(Optional<List<Part>> members, double kept, String verdict) {
    static Search none(String why) {
      return new Search(Optional.empty(), 0, "no small circuit: " + why);
    }
  }

  private Search search(List<Part> strongest) {
    int candidates = parts.size() - always.size();
    int most = Math.min(request.most(), candidates / 2);
    double total = experiment.value() - ablated;
    if (total < LEAST_TOTAL) {
      return Search.none(
          String.format(
              Locale.ROOT,
              "all %d parts together raise the %s by %.2f, which is less than %.1f",
              candidates,
              experiment.quantity().words(),
              total,
              LEAST_TOTAL));
    }
    CircuitSearch<Part> search =
        new CircuitSearch<>(
            sets -> shares(sets.stream().map(this::alone).toList()), request.keep());
    CircuitSearch.Found<Part> grown = search.grow(strongest);
    List<Part> others = new ArrayList<>(parts);
    others.removeAll(always);
    others.removeAll(grown.members());
    CircuitSearch.Found<Part> found =
        search.extend(grown, others, CircuitSearch.widest(request.most()));
    if (found.kept() < request.keep()) {
      return Search.none(
          String.format(
              Locale.ROOT,
              "the %s that do most alone keep %.0f%% of the effect, which is less than %.0f%%",
              Count.of(found.members().size(), "part"),
              100 * found.kept(),
              100 * request.keep()));
    }
    CircuitSearch.Found<Part> pruned = search.prune(found);
    int size = pruned.members().size();
    if (size > most) {
      return Search.none(
          String.format(
              Locale.ROOT,
              "%d of %d parts are needed to keep %.0f%% of the effect, which is more than %d",
              size,
              candidates,
              100 * request.keep(),
              most));
    }
    return new Search(
        Optional.of(pruned.members().stream().sorted().toList()),
        pruned.kept(),
        String.format(
            Locale.ROOT,
            "%d of %d parts alone keep %.0f%% of the effect",
            size,
            candidates,
            100 * pruned.kept()));
  }

  private Circuit circuit(List<Part> members, double kept) {
    begin(Phase.EDGES, effort.effects() + effort.search());
    List<Edge> edges = edges(members);
    List<Link> fixed = fixed(members);
    CircuitSearch<Edge> search =
        new CircuitSearch<>(
            sets -> shares(sets.stream().map(set -> paths.alone(links(fixed, set))).toList()),
            LINKS_KEEP * kept);
    List<Edge> supporting = // first those without which the quantity falls most
        edges.stream().sorted(Comparator.comparingDouble(Edge::effect)).toList();
    CircuitSearch.Found<Edge> found = search.bisect(supporting);
    List<Place> places = new Places(experiment, replacements, paths).of(members);
    return new Circuit(
        members,
        value(kept),
        kept,
        found.members(),
        value(found.kept()),
        found.kept(),
        edges,
        places);
  }

  /** Links from and to parts that run as they are. */
  private List<Link> fixed(List<Part> members) {
    List<Part> all = Stream.concat(members.stream(), always.stream()).sorted().toList();
    return Paths.links(all, all).stream()
        .filter(
            link -> always.contains(link.from()) || link.to().filter(always::contains).isPresent())
        .toList();
  }

  private static List<Link> links(List<Link> fixed, List<Edge> edges) {
    List<Link> links = new ArrayList<>(fixed);
    edges.forEach(edge -> links.add(edge.link()));
    return links;
  }

  /** What members read from each other, and the logits from them; the largest effect first. */
  private List<Edge> edges(List<Part> members) {
    List<Edge> edges = new ArrayList<>();
    for (Part to : members) {
      List<Part> from = members.stream().filter(part -> part.isReadBy(to)).toList();
      for (Via via : from.isEmpty() ? List.<Via>of() : Paths.vias(to)) {
        double[] effects = experiment.effects(paths.through(from, to, via));
        for (int i = 0; i < effects.length; i++) {
          edges.add(new Edge(new Link(from.get(i), Optional.of(to), via), effects[i]));
        }
      }
    }
    double[] direct = experiment.effects(members.stream().map(paths::toLogits).toList());
    for (int i = 0; i < direct.length; i++) {
      edges.add(new Edge(new Link(members.get(i), Optional.empty(), Via.LOGIT), direct[i]));
    }
    edges.sort(Comparator.comparingDouble(edge -> -Math.abs(edge.effect())));
    return edges;
  }

  @Override
  public void close() {
    experiment.close();
  }
}
