package dev.loupe.attention;

import java.util.Arrays;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What each head did over a text: {@link HeadScore}s and the heaviest edges, of chosen layers and
 * heads. Rows of attention go by and none is kept: beside the sums there is one number a token, and
 * one more a head where values count.
 *
 * <p>A head's rows come in the order of their queries, so that sums have one order however a text
 * was cut into passes.
 */
public final class HeadStatistics {
  /** How many edges are kept of each head. */
  public static final int EDGES = 8;

  /**
   * A query that read a key.
   *
   * @param query place of the token that read, from 0
   * @param key place of the token that was read
   * @param weight how much: a part of the query's attention, or a norm
   */
  public record Edge(int query, int key, float weight) {}

  private static final class Mean {
    double sum;
    long count;
  }

  /** What is known of one head. */
  private static final class Head {
    final Map<HeadScore, Mean> means = new EnumMap<>(HeadScore.class);
    final TopEdges toFirst = new TopEdges(EDGES);
    final TopEdges toOthers = new TopEdges(EDGES);
    final TopEdges byNorm = new TopEdges(EDGES);
    float[] norms = {}; // |v W_O| of each token

    void count(HeadScore score, double value) {
      count(score, value, 1);
    }

    void count(HeadScore score, double sum, long count) {
      Mean mean = means.computeIfAbsent(score, any -> new Mean());
      mean.sum += sum;
      mean.count += count;
    }
  }

  private final int[] layers;
  private final int[] heads;
  private final int repeat;
  private final boolean valueNorms;
  private final Head[] all; // [layers, heads]
  private final Map<Integer, Integer> latest = new HashMap<>(); // where an id stood last
  private int[] earlier = new int[16]; // where each token's id stood before it, or -1
  private int tokens;

  private HeadStatistics(int[] layers, int[] heads, int repeat, boolean valueNorms) {
    if (repeat < 0) {
      throw new IllegalArgumentException("a sequence of %d tokens repeated".formatted(repeat));
    }
    this.layers = layers.clone();
    this.heads = heads.clone();
    this.repeat = repeat;
    this.valueNorms = valueNorms;
    all = new Head[layers.length * heads.length];
    Arrays.setAll(all, i -> new Head());
  }

  /**
   * Of {@code layers} x {@code heads}, whose numbers ascend, over any text.
   *
   * @param valueNorms whether {@link #value} will be told
   */
  public static HeadStatistics ofText(int[] layers, int[] heads, boolean valueNorms) {
    return new HeadStatistics(layers, heads, 0, valueNorms);
  }

  /**
   * Likewise over random tokens that come twice: what repeats is then told by diagonals, as {@link
   * HeadScore} says.
   *
   * @param length how many tokens are repeated, L: at least 1
   */
  public static HeadStatistics ofRepeated(
      int length, int[] layers, int[] heads, boolean valueNorms) {
    if (length < 1) {
      throw new IllegalArgumentException("a sequence of %d tokens repeated".formatted(length));
    }
    return new HeadStatistics(layers, heads, length, valueNorms);
  }

  /** The layers that are here, by their number in the model, ascending. */
  public int[] layers() {
    return layers.clone();
  }

  /** The heads that are here of each layer, by their number in the model, ascending. */
  public int[] heads() {
    return heads.clone();
  }

  /** Number of tokens that these are about, T. */
  public int tokens() {
    return tokens;
  }

  /** How many random tokens were repeated, L; 0 where it is any text. */
  public int repeated() {
    return repeat;
  }

  /** Whether scores and edges by norm are here. */
  public boolean hasValueNorms() {
    return valueNorms;
  }

  /**
   * One score of one head.
   *
   * @return NaN where no query counts
   * @throws IllegalArgumentException if the layer or head is not here
   */
  public double score(HeadScore score, int layer, int head) {
    Mean mean = head(layer, head).means.get(score);
    return mean == null ? Double.NaN : mean.sum / mean.count;
  }

  /**
   * The heaviest P[i, j] of a head, heaviest first, at most {@link #EDGES}; the query that had but
   * one key to read is left out.
   *
   * @param ignoreFirst whether edges to the first token are left out, which soak up attention
   * @throws IllegalArgumentException if the layer or head is not here
   */
  public List<Edge> edges(int layer, int head, boolean ignoreFirst) {
    Head of = head(layer, head);
    return ignoreFirst ? of.toOthers.edges() : of.toOthers.with(of.toFirst);
  }

  /** The heaviest |P[i, j] v[j] W_O| of a head, likewise; none without norms of values. */
  public List<Edge> edgesByNorm(int layer, int head) {
    return head(layer, head).byNorm.edges();
  }

  /** The tokens that come next; their rows follow. */
  public void tokens(int... ids) {
    if (tokens + ids.length > earlier.length) {
      earlier = Arrays.copyOf(earlier, Math.max(tokens + ids.length, 2 * tokens));
    }
    for (int id : ids) {
      Integer before = latest.put(id, tokens);
      earlier[tokens++] = before == null ? -1 : before;
    }
  }

  /** |v W_O| of the token at {@code position} in one head, before any row that reads it. */
  public void value(int layer, int head, int position, float norm) {
    Head of = head(layer, head);
    if (position >= of.norms.length) {
      of.norms = Arrays.copyOf(of.norms, Math.max(position + 1, Math.max(tokens, 2 * position)));
    }
    of.norms[position] = norm;
  }

  /**
   * Takes entropy and mean distance of a row, as {@link dev.loupe.ops.Attention#statistics} has
   * them.
   */
  public void spread(int layer, int head, int first, int query, float[] statistics) {
    Head of = head(layer, head);
    of.count(HeadScore.ENTROPY, statistics[0]);
    of.count(HeadScore.MEAN_DISTANCE, statistics[1]);
    if (query > first) {
      of.count(HeadScore.NORMALISED_ENTROPY, statistics[0] / Math.log(query - first + 1));
    }
  }

  /**
   * Takes a row.
   *
   * @param first the first key that it could read: those before it have left the context
   * @param row P[query, j] at index j, for first &lt;= j &lt;= query
   */
  public void row(int layer, int head, int first, int query, float[] row) {
    Head of = head(layer, head);
    if (query > first) {
      of.count(HeadScore.FIRST_TOKEN, row[first]);
      of.count(HeadScore.SELF, row[query]);
      of.count(HeadScore.PREVIOUS_TOKEN, row[query - 1]);
      of.toFirst.offer(query, first, row[first]);
      offer(of.toOthers, query, first + 1, row);
    }
    if (repeat > 0) {
      diagonals(of, first, query, row);
    } else {
      repeats(of, first, query, row);
    }
    if (valueNorms) {
      byNorm(of, first, query, row);
    }
  }

  private static void offer(TopEdges edges, int query, int firstKey, float[] row) {
    float floor = edges.floor();
    for (int key = firstKey; key <= query; key++) {
      if (row[key] > floor) {
        edges.offer(query, key, row[key]);
        floor = edges.floor();
      }
    }
  }

  private void diagonals(Head of, int first, int query, float[] row) {
    if (query - repeat >= first) {
      of.count(HeadScore.DUPLICATE_TOKEN, row[query - repeat]);
    }
    if (query - repeat + 1 >= first) {
      of.count(HeadScore.INDUCTION, row[query - repeat + 1]);
    }
  }

  private void repeats(Head of, int first, int query, float[] row) {
    double same = 0;
    double next = 0;
    int key = earlier[query];
    if (key < first) {
      return;
    }
    for (; key >= first; key = earlier[key]) {
      same += row[key];
      next += row[key + 1];
    }
    of.count(HeadScore.DUPLICATE_TOKEN, same);
    of.count(HeadScore.INDUCTION, next);
  }

  private static void byNorm(Head of, int first, int query, float[] row) {
    float[] norms = of.norms;
    TopEdges edges = of.byNorm;
    float floor = query > first ? edges.floor() : Float.POSITIVE_INFINITY;
    double sum = 0;
    for (int key = first; key <= query; key++) {
      float weighted = row[key] * norms[key];
      sum += weighted;
      if (weighted > floor) {
        edges.offer(query, key, weighted);
        floor = edges.floor();
      }
    }
    of.count(HeadScore.WEIGHTED_NORM, sum);
    if (query > first && sum > 0) {
      of.count(HeadScore.FIRST_TOKEN_BY_NORM, row[first] * norms[first] / sum);
    }
  }

  /**
   * Takes what {@code other} knows of another text, or of a later piece of the same: means are then
   * over the queries of both. Tokens that are equal in both do not count as repeated, since no row
   * reads from one into the other.
   *
   * @throws IllegalArgumentException if {@code other} is of other layers or heads, or of another
   *     kind
   */
  public void add(HeadStatistics other) {
    if (!Arrays.equals(layers, other.layers)
        || !Arrays.equals(heads, other.heads)
        || repeat != other.repeat
        || valueNorms != other.valueNorms) {
      throw new IllegalArgumentException(
          "statistics of layers %s, heads %s, %d repeated, and of layers %s, heads %s, %d repeated"
              .formatted(
                  Arrays.toString(layers),
                  Arrays.toString(heads),
                  repeat,
                  Arrays.toString(other.layers),
                  Arrays.toString(other.heads),
                  other.repeat));
    }
    for (int i = 0; i < all.length; i++) {
      Head of = all[i];
      other.all[i].means.forEach((score, mean) -> of.count(score, mean.sum, mean.count));
      of.toFirst.offerAll(other.all[i].toFirst, tokens);
      of.toOthers.offerAll(other.all[i].toOthers, tokens);
      of.byNorm.offerAll(other.all[i].byNorm, tokens);
    }
    int more = other.tokens;
    earlier = Arrays.copyOf(earlier, Math.max(earlier.length, tokens + more));
    Arrays.fill(earlier, tokens, tokens + more, -1);
    tokens += more;
    latest.clear();
  }

  private Head head(int layer, int head) {
    int l = Arrays.binarySearch(layers, layer);
    int h = Arrays.binarySearch(heads, head);
    if (l < 0 || h < 0) {
      throw new IllegalArgumentException(
          "no statistics of head %d.%d here: layers %s, heads %s"
              .formatted(layer, head, Arrays.toString(layers), Arrays.toString(heads)));
    }
    return all[l * heads.length + h];
  }
}
