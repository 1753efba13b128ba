package dev.loupe.interpret.trace;

import java.util.ArrayList;
import java.util.List;

/**
 * One reading of a text in which some activations are others than the model's own. All that comes
 * before the first of them is as it was.
 */
final class Cut {
  /** What is changed. */
  enum Site {
    /** What a layer reads: the residual stream before it. */
    RESIDUAL(0),
    /** The output of a head, before c_proj. */
    HEAD(1),
    /** What an MLP adds to the residual stream. */
    MLP(2);

    /** In which order a pass of a layer comes by. */
    final int order;

    Site(int order) {
      this.order = order;
    }

    /** The site of a {@link Cut#stage}. */
    static Site of(int stage) {
      return List.of(RESIDUAL, HEAD, MLP).get(stage % 3);
    }
  }

  /** A change at some positions. */
  static final class Change {
    private final Site site;
    private final int layer;
    private final int head;
    private final float[] values;
    private final int from;
    private final int to;

    /**
     * @param layer L for the residual stream after the last layer
     * @param head of {@link Site#HEAD}
     * @param values [to - from, C], or [to - from, D] of a head: what comes in its place; not
     *     copied
     * @param from first position that is changed
     * @param to one past the last
     */
    Change(Site site, int layer, int head, float[] values, int from, int to) {
      this.site = site;
      this.layer = layer;
      this.head = head;
      this.values = values;
      this.from = from;
      this.to = to;
    }

    int head() {
      return head;
    }

    float[] values() {
      return values;
    }

    int from() {
      return from;
    }

    int to() {
      return to;
    }

    /** In which order a pass comes by. */
    int stage() {
      return 3 * layer + site.order;
    }
  }

  private final List<Change> changes;
  private final int stage;

  Cut(List<Change> changes) {
    this.changes = List.copyOf(changes);
    stage = changes.stream().mapToInt(Change::stage).min().orElse(1);
  }

  /** One part's output is another at all positions. */
  static Cut of(Part part, float[] values, int tokens) {
    return new Cut(List.of(change(part, values, 0, tokens)));
  }

  /** The residual stream before a layer is another. */
  static Cut residual(int layer, float[] values, int from, int to) {
    return new Cut(List.of(new Change(Site.RESIDUAL, layer, 0, values, from, to)));
  }

  static Change change(Part part, float[] values, int from, int to) {
    return part.isMlp()
        ? new Change(Site.MLP, part.layer(), 0, values, from, to)
        : new Change(Site.HEAD, part.layer(), part.head(), values, from, to);
  }

  /** Where the first change is. */
  int stage() {
    return stage;
  }

  /** Layers that are computed, of {@code layers}. */
  int layers(int layers) {
    return Math.max(1, layers - stage / 3);
  }

  List<Change> at(Site site, int layer) {
    List<Change> here = new ArrayList<>();
    for (Change change : changes) {
      if (change.site == site && change.layer == layer) {
        here.add(change);
      }
    }
    return here;
  }
}
