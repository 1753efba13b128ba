package dev.loupe.interpret.trace;

import dev.loupe.model.ReferenceGpt2;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.List;
import java.util.function.Predicate;

/** Interventions in float64, each by a whole pass of its own. */
final class Textbook {
  private final Checkpoint checkpoint;
  private final Gpt2Config config;
  private final int[] ids;
  private final Quantity quantity;
  private final ReferenceGpt2 clean;
  private final ReferenceGpt2 other;

  Textbook(Checkpoint checkpoint, int[] ids, int[] otherIds, Quantity quantity) {
    this.checkpoint = checkpoint;
    this.ids = ids;
    this.quantity = quantity;
    config = checkpoint.config();
    clean = new ReferenceGpt2(checkpoint, ids);
    other = new ReferenceGpt2(checkpoint, otherIds);
  }

  private double value(double[] logits) {
    if (quantity.against().isPresent()) {
      return logits[quantity.target()] - logits[quantity.against().get().id()];
    }
    double sum = 0;
    for (double logit : logits) {
      sum += Math.exp(logit);
    }
    return logits[quantity.target()] - Math.log(sum);
  }

  double value() {
    return value(clean.logits[ids.length - 1]);
  }

  double otherValue() {
    return value(other.logits[ids.length - 1]);
  }

  /** The effect of one activation of the other reading at one position. */
  double cell(PatchGrid.Row row, int at) {
    int d = config.headDim();
    int width = config.nEmbd();
    return value(
            new ReferenceGpt2.Change() {
              private void patch(
                  boolean here, double[][] to, double[][] from, int column, int columns) {
                if (here) {
                  System.arraycopy(from[at], column, to[at], column, columns);
                }
              }

              private boolean is(PatchGrid.Site site, int layer) {
                return row.site() == site && row.layer() == layer;
              }

              @Override
              public void of(int layer, double[][] heads) {
                double[][] from = other.heads[layer];
                patch(is(PatchGrid.Site.ATTENTION, layer), heads, from, 0, width);
                patch(is(PatchGrid.Site.HEAD, layer), heads, from, row.head() * d, d);
              }

              @Override
              public void residual(int layer, double[][] x) {
                patch(is(PatchGrid.Site.RESIDUAL, layer), x, other.hidden[layer], 0, width);
              }

              @Override
              public void mlp(int layer, double[][] out) {
                patch(is(PatchGrid.Site.MLP, layer), out, other.mlps[layer], 0, width);
              }

              @Override
              public void inputs(int layer, double[][] qkv) {
                double[][] from = other.qkv(layer, other.hidden[layer]);
                int first = row.head() * d;
                patch(is(PatchGrid.Site.QUERY, layer), qkv, from, first, d);
                patch(is(PatchGrid.Site.KEY, layer), qkv, from, width + first, d);
                patch(is(PatchGrid.Site.VALUE, layer), qkv, from, 2 * width + first, d);
              }
            })
        - value();
  }

  private double value(ReferenceGpt2.Change change) {
    return value(new ReferenceGpt2(checkpoint, config, ids, change).logits[ids.length - 1]);
  }

  /** What takes the place of a row of a part's output: its columns of y, or what an MLP adds. */
  private void replace(double[][] rows, double[][] second, Part part, Ablation by, int only) {
    int first = part.isMlp() ? 0 : part.head() * config.headDim();
    int columns = part.isMlp() ? config.nEmbd() : config.headDim();
    for (int c = first; c < first + columns; c++) {
      double mean = 0;
      for (double[] row : rows) {
        mean += row[c] / rows.length;
      }
      for (int t = 0; t < rows.length; t++) {
        if (only < 0 || only == t) {
          rows[t][c] = by == Ablation.ZERO ? 0 : by == Ablation.MEAN ? mean : second[t][c];
        }
      }
    }
  }

  /** Replaces parts by what they are in the clean reading, its mean, or the other one's. */
  private final class Replacing implements ReferenceGpt2.Change {
    private final Predicate<Part> which;
    private final Ablation by;
    private final int only;

    Replacing(Predicate<Part> which, Ablation by, int only) {
      this.which = which;
      this.by = by;
      this.only = only;
    }

    @Override
    public void of(int layer, double[][] heads) {
      for (int head = 0; head < config.nHead(); head++) {
        Part part = new Part(layer, head);
        if (which.test(part)) {
          copy(clean.heads[layer], heads, head * config.headDim(), config.headDim());
          replace(heads, other.heads[layer], part, by, only);
        }
      }
    }

    @Override
    public void mlp(int layer, double[][] out) {
      if (which.test(Part.mlp(layer))) {
        copy(clean.mlps[layer], out, 0, config.nEmbd());
        replace(out, other.mlps[layer], Part.mlp(layer), by, only);
      }
    }

    private void copy(double[][] from, double[][] to, int column, int columns) {
      for (int t = 0; t < to.length; t++) {
        System.arraycopy(from[t], column, to[t], column, columns);
      }
    }
  }

  double effect(Part part, Ablation by) {
    return value(new Replacing(part::equals, by, -1)) - value();
  }

  double effectAt(Part part, int position) {
    return value(new Replacing(part::equals, Ablation.MEAN, position)) - value();
  }

  double alone(List<Part> members, Ablation by) {
    return value(new Replacing(part -> !members.contains(part), by, -1));
  }

  /** What the replacement of a part changes in the residual stream. */
  private double[][] delta(Part part, Ablation by) {
    int layer = part.layer();
    double[][] was = part.isMlp() ? clean.mlps[layer] : clean.heads[layer];
    double[][] is = new double[was.length][];
    for (int t = 0; t < was.length; t++) {
      is[t] = was[t].clone();
    }
    replace(is, part.isMlp() ? other.mlps[layer] : other.heads[layer], part, by, -1);
    double[][] delta = new double[was.length][config.nEmbd()];
    StoredTensor weight = checkpoint.tensor("h.%d.attn.c_proj.weight".formatted(layer));
    float[] row = new float[config.nEmbd()];
    for (int i = 0; i < config.nEmbd(); i++) {
      weight.read((long) i * row.length, row, 0, row.length);
      for (int t = 0; t < delta.length; t++) {
        for (int c = 0; c < row.length; c++) {
          delta[t][c] +=
              part.isMlp() ? (i == c ? is[t][c] - was[t][c] : 0) : (is[t][i] - was[t][i]) * row[c];
        }
      }
    }
    return delta;
  }

  private static double[][] sum(double[][] x, double[][] delta) {
    double[][] sum = new double[x.length][];
    for (int t = 0; t < x.length; t++) {
      sum[t] = x[t].clone();
      for (int c = 0; c < sum[t].length; c++) {
        sum[t][c] += delta[t][c];
      }
    }
    return sum;
  }

  double direct(Part part, Ablation by) {
    double[][] delta = delta(part, by);
    return value(
            new ReferenceGpt2.Change() {
              @Override
              public void of(int layer, double[][] heads) {}

              @Override
              public void residual(int layer, double[][] x) {
                for (int t = 0; layer == config.nLayer() && t < x.length; t++) {
                  x[t] = sum(x, delta)[t];
                }
              }
            })
        - value();
  }

  double path(Circuit.Link link, Ablation by) {
    if (link.to().isEmpty()) {
      return direct(link.from(), by);
    }
    Part to = link.to().get();
    double[][] x = sum(clean.hidden[to.layer()], delta(link.from(), by));
    if (to.isMlp()) {
      return throughMlp(link.from(), to.layer(), by);
    }
    double[][] other = clean.qkv(to.layer(), x);
    int third = List.of(Via.QUERY, Via.KEY, Via.VALUE).indexOf(link.via()); // of c_attn's outputs
    int first = third * config.nEmbd() + to.head() * config.headDim();
    return value(
            new ReferenceGpt2.Change() {
              @Override
              public void of(int layer, double[][] heads) {}

              @Override
              public void inputs(int layer, double[][] qkv) {
                for (int t = 0; layer == to.layer() && t < qkv.length; t++) {
                  System.arraycopy(other[t], first, qkv[t], first, config.headDim());
                }
              }
            })
        - value();
  }

  /** The MLP's output is read off a pass in which the residual stream before it is changed. */
  private double throughMlp(Part from, int at, Ablation by) {
    double[][] delta = delta(from, by);
    double[][] changed =
        new ReferenceGpt2(
                checkpoint,
                config,
                ids,
                new ReferenceGpt2.Change() {
                  @Override
                  public void of(int layer, double[][] heads) {
                    for (int t = 0; layer == at && t < heads.length; t++) {
                      System.arraycopy(clean.heads[at][t], 0, heads[t], 0, heads[t].length);
                    }
                  }

                  @Override
                  public void residual(int layer, double[][] x) {
                    for (int t = 0; layer == at && t < x.length; t++) {
                      x[t] = sum(x, delta)[t];
                    }
                  }
                })
            .mlps[at];
    return value(
            new ReferenceGpt2.Change() {
              @Override
              public void of(int layer, double[][] heads) {}

              @Override
              public void mlp(int layer, double[][] out) {
                for (int t = 0; layer == at && t < out.length; t++) {
                  System.arraycopy(changed[t], 0, out[t], 0, out[t].length);
                }
              }
            })
        - value();
  }
}
