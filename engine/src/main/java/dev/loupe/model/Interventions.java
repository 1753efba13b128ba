package dev.loupe.model;

import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.List;

/**
 * Changes to heads of a model, for one run: what a head adds to the residual stream is multiplied
 * by a factor (0 is zero ablation), or replaced by its mean over the positions of the prompt (mean
 * ablation; both as in Wang et al., "Interpretability in the Wild", arXiv 2211.00593); or the same
 * weights are cut into another number of heads.
 *
 * <p>A head's output meets the residual stream in its rows of c_proj alone, so that a change of
 * those rows, and of the bias, is all that it takes, on every backend.
 */
public final class Interventions {
  /** The model as it is. */
  public static final Interventions NONE = new Interventions(List.of(), 0);

  /**
   * What becomes of a head.
   *
   * @param factor on what it adds
   * @param mean whether its mean over the prompt is added in its place
   */
  record Change(int layer, int head, double factor, boolean mean) {}

  private final List<Change> changes;
  private final int heads; // 0: as many as the model has

  private Interventions(List<Change> changes, int heads) {
    this.changes = changes;
    this.heads = heads;
  }

  /** What the head adds is multiplied by {@code factor}, which is finite; 0 leaves it out. */
  public Interventions scale(int layer, int head, double factor) {
    if (!Double.isFinite(factor)) {
      throw new IllegalArgumentException(
          "head %d.%d times %s: not a number".formatted(layer, head, factor));
    }
    return with(new Change(layer, head, factor, false));
  }

  /** In place of what the head adds comes its mean over the positions of the prompt. */
  public Interventions mean(int layer, int head) {
    return with(new Change(layer, head, 0, true));
  }

  private Interventions with(Change change) {
    String name = "head %d.%d".formatted(change.layer, change.head);
    if (change.layer < 0 || change.head < 0) {
      throw new IllegalArgumentException("there is no " + name);
    }
    if (changes.stream().anyMatch(c -> c.layer == change.layer && c.head == change.head)) {
      throw new IllegalArgumentException(name + " is changed twice");
    }
    List<Change> more = new ArrayList<>(changes);
    more.add(change);
    return new Interventions(List.copyOf(more), heads);
  }

  /**
   * The weights are cut into {@code n} heads a layer instead of the model's own number; what else
   * is asked for is then of these heads.
   */
  public Interventions heads(int n) {
    if (n < 1) {
      throw new IllegalArgumentException("%d heads: not 1 or more".formatted(n));
    }
    return new Interventions(changes, n);
  }

  /** Whether nothing is changed. */
  public boolean none() {
    return changes.isEmpty() && heads == 0;
  }

  /** Whether a plain pass over the prompt has to come first. */
  boolean needMeans() {
    return changes.stream().anyMatch(Change::mean);
  }

  List<Change> changes() {
    return changes;
  }

  /**
   * The configuration with these heads.
   *
   * @throws IllegalArgumentException if the model can't be cut so, or lacks a head
   */
  public Gpt2Config of(Gpt2Config config) {
    Gpt2Config cut = config;
    if (heads > 0) {
      if (config.nEmbd() % heads != 0) {
        throw new IllegalArgumentException(
            "a width of %d can't be cut into %d heads".formatted(config.nEmbd(), heads));
      }
      cut = config.withHeads(heads);
    }
    for (Change change : changes) {
      cut.requireHead(change.layer, change.head);
    }
    return cut;
  }
}
