package dev.loupe.interpret.trace;

import dev.loupe.interpret.trace.Circuit.Link;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;

/**
 * Path patching (Wang et al., arXiv 2211.00593; Goldowsky-Dill et al., arXiv 2304.05969): one part
 * reads another's replaced output by one of its inputs alone, and all else that it reads is as it
 * was.
 *
 * <p>What a head makes of a changed input is its recorded output and the difference that the
 * checkpoint's weights make in double, so that a backend's rounding has no part in it.
 */
final class Paths {
  private final Gpt2Config config;
  private final Recording clean;
  private final Replacements replacements;
  private final CutRunner runner;
  private final HeadMath math;
  private final Map<Part, float[]> deltas = new HashMap<>();
  private final Map<Part, Inputs> inputs = new HashMap<>();

  Paths(Gpt2Config config, Replacements replacements, CutRunner runner, HeadMath math) {
    this.config = config;
    this.replacements = replacements;
    this.runner = runner;
    this.math = math;
    clean = runner.clean();
  }

  /** What a head reads, [T, D] each, and what it makes of that. */
  private static final class Inputs {
    private final double[] q;
    private final double[] k;
    private final double[] v;
    private final double[] made;

    Inputs(double[] q, double[] k, double[] v, double[] made) {
      this.q = q;
      this.k = k;
      this.v = v;
      this.made = made;
    }

    double[] of(Via via) {
      return switch (via) {
        case QUERY -> q;
        case KEY -> k;
        default -> v;
      };
    }
  }

  private Inputs inputs(Part head) {
    return inputs.computeIfAbsent(
        head,
        _ -> {
          double[] normed = math.norm(clean.x[head.layer()], head.layer());
          return inputs(head, via -> math.project(normed, head.layer(), head.head(), via));
        });
  }

  private interface Projection {
    double[] of(Via via);
  }

  private Inputs inputs(Part head, Projection projection) {
    double[] q = projection.of(Via.QUERY);
    double[] k = projection.of(Via.KEY);
    double[] v = projection.of(Via.VALUE);
    return new Inputs(q, k, v, math.attend(q, k, v, head.layer()));
  }

  /** By what a part reads those before it. */
  static List<Via> vias(Part part) {
    return part.isMlp() ? List.of(Via.MLP) : List.of(Via.QUERY, Via.KEY, Via.VALUE);
  }

  /** What the replacement of a part's output changes in the residual stream, [T, C]. */
  float[] delta(Part part) {
    return deltas.computeIfAbsent(
        part, _ -> written(part, replacements.of(part), clean.output(part)));
  }

  /** What one output adds to the residual stream more than another, [T, C]. */
  private float[] written(Part part, float[] output, float[] than) {
    if (part.isMlp()) {
      return sum(output, than, -1);
    }
    double[] difference = new double[output.length];
    for (int i = 0; i < output.length; i++) {
      difference[i] = (double) output[i] - than[i];
    }
    return math.write(difference, part.layer(), part.head());
  }

  private static float[] sum(float[] a, float[] b, int sign) {
    float[] sum = a.clone();
    for (int i = 0; i < b.length; i++) {
      sum[i] += sign * b[i];
    }
    return sum;
  }

  /** What a head reads from a position: the softmax of its scores. */
  double[] row(Part head, int query) {
    Inputs usual = inputs(head);
    return math.row(usual.q, usual.k, query, head.layer());
  }

  /** The direct path to the logits: they alone read the replaced output of {@code from}. */
  Cut toLogits(Part from) {
    int last = clean.tokens - 1;
    float[] changed =
        written(from, row(replacements.of(from), last), row(clean.output(from), last));
    float[] x = row(clean.x[config.nLayer()], last);
    return Cut.residual(config.nLayer(), sum(x, changed, 1), last, last + 1);
  }

  private float[] row(float[] rows, int row) {
    int columns = rows.length / clean.tokens;
    return Arrays.copyOfRange(rows, row * columns, (row + 1) * columns);
  }

  /**
   * The paths from some parts to another, each on its own.
   *
   * @param via by what it reads them
   */
  List<Cut> through(List<Part> from, Part to, Via via) {
    List<Cut> cuts = new ArrayList<>();
    if (to.isMlp()) {
      List<float[]> mids = new ArrayList<>();
      from.forEach(part -> mids.add(sum(clean.mid[to.layer()], delta(part), 1)));
      runner.mlp(to.layer(), mids).forEach(output -> cuts.add(Cut.of(to, output, clean.tokens)));
      return cuts;
    }
    Inputs usual = inputs(to);
    for (Part part : from) {
      float[] x = sum(clean.x[to.layer()], delta(part), 1);
      double[] other = math.project(math.norm(x, to.layer()), to.layer(), to.head(), via);
      Inputs changed = inputs(to, each -> each == via ? other : usual.of(each));
      cuts.add(Cut.of(to, output(to, changed), clean.tokens));
    }
    return cuts;
  }

  /** A head's recorded output, and what another input changes in it. */
  private float[] output(Part head, Inputs changed) {
    float[] output = clean.output(head);
    double[] usual = inputs(head).made;
    for (int i = 0; i < output.length; i++) {
      output[i] += (float) (changed.made[i] - usual[i]);
    }
    return output;
  }

  /** The residual streams where every part's output is replaced: before, and amid, each layer. */
  private float[][] bases() {
    float[][] bases = new float[2 * config.nLayer() + 1][];
    float[] x = clean.x[0].clone();
    for (int layer = 0; layer < config.nLayer(); layer++) {
      bases[2 * layer] = x;
      float[] mid = sum(x, sum(clean.mid[layer], clean.x[layer], -1), 1);
      for (int head = 0; head < config.nHead(); head++) {
        mid = sum(mid, delta(new Part(layer, head)), 1);
      }
      bases[2 * layer + 1] = mid;
      x = sum(mid, replacements.of(Part.mlp(layer)), 1);
    }
    bases[2 * config.nLayer()] = x;
    return bases;
  }

  /** All links into the parts of a list and the logits from parts of another. */
  static List<Link> links(List<Part> from, List<Part> to) {
    List<Link> links = new ArrayList<>();
    for (Part part : from) {
      for (Part reader : to) {
        if (part.isReadBy(reader)) {
          vias(reader).forEach(via -> links.add(new Link(part, Optional.of(reader), via)));
        }
      }
      links.add(new Link(part, Optional.empty(), Via.LOGIT));
    }
    return links;
  }

  /**
   * Some parts alone, that read each other by some links alone: of what a link brings, each reads
   * the other's own output, and of all else the replacement; so do the logits. Without links that
   * is the model with every part replaced, and with all links among some parts it is the model with
   * every other part replaced.
   */
  Cut alone(Collection<Link> links) {
    Map<Part, Map<Via, List<Part>>> into = new TreeMap<>();
    List<Part> toLogits = new ArrayList<>();
    for (Link link : links) {
      into.computeIfAbsent(link.from(), _ -> new EnumMap<>(Via.class));
      Optional<Part> to = link.to();
      if (to.isEmpty()) {
        toLogits.add(link.from());
      } else {
        into.computeIfAbsent(to.get(), _ -> new EnumMap<>(Via.class))
            .computeIfAbsent(link.via(), _ -> new ArrayList<>())
            .add(link.from());
      }
    }
    float[][] bases = bases();
    Map<Part, float[]> added = new HashMap<>(); // by each member, more than its replacement
    into.forEach(
        (part, from) -> {
          float[] base = bases[2 * part.layer() + (part.isMlp() ? 1 : 0)];
          float[] output;
          if (part.isMlp()) {
            float[] mid = read(base, from.getOrDefault(Via.MLP, List.of()), added);
            output = runner.mlp(part.layer(), List.of(mid)).getFirst();
          } else {
            output =
                output(
                    part,
                    inputs(
                        part,
                        via ->
                            math.project(
                                math.norm(
                                    read(base, from.getOrDefault(via, List.of()), added),
                                    part.layer()),
                                part.layer(),
                                part.head(),
                                via)));
          }
          added.put(part, written(part, output, replacements.of(part)));
        });
    int layers = config.nLayer();
    float[] x = read(bases[2 * layers], toLogits, added);
    return Cut.residual(layers, x, 0, clean.tokens);
  }

  private static float[] read(float[] base, List<Part> from, Map<Part, float[]> added) {
    float[] all = base;
    for (Part part : from) {
      all = sum(all, Objects.requireNonNull(added.get(part)), 1);
    }
    return all;
  }
}
