package dev.loupe.export;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * For a terminal: what every token read most, averaged over the layers and heads of the run's maps,
 * or in the heads that differ most from that average.
 */
public final class AttentionTable {
  private static final int WEIGHT_WIDTH = 6; // "<0.001"
  private static final int LEAST_LABEL = 5;
  private static final int MOST_LABEL = 18;

  private final MappedRun run;
  private final int top;
  private final int columns;
  private final int positionWidth;
  private final int labelWidth;
  private final int perLine;

  private final List<Head> heads; // one key of each; empty for the average

  private AttentionTable(MappedRun run, int top, List<Head> heads, int columns) {
    this.run = run;
    this.heads = heads;
    this.top = heads.isEmpty() ? Math.min(top, run.tokens().size()) : heads.size();
    this.columns = columns;
    int count = run.tokens().size();
    positionWidth = Integer.toString(count - 1).length();
    int widest = "token".length();
    for (Token token : run.tokens()) {
      widest = Math.max(widest, TerminalText.width(token.label()));
    }
    // a line is label, position, then per key two spaces, label, position, weight
    int keysPerLine = this.top + 1;
    int fits;
    do {
      keysPerLine--;
      int besideLabels =
          1 + positionWidth + keysPerLine * (2 + 1 + positionWidth + 1 + WEIGHT_WIDTH);
      fits = (columns - besideLabels) / (keysPerLine + 1);
    } while (keysPerLine > 1 && fits < Math.min(widest, LEAST_LABEL));
    perLine = keysPerLine;
    labelWidth = Math.max(LEAST_LABEL, Math.min(Math.min(widest, MOST_LABEL), fits));
  }

  /**
   * A header and one line per token: its label and position, then the {@code top} keys that it read
   * most, best first, each with label, position and weight. Narrow terminals continue a token's
   * keys on further lines.
   *
   * @param top how many keys, at least 1
   * @param columns the terminal's width; lines keep within it from 35 on
   * @return lines, each ended by a line feed
   * @throws IllegalArgumentException if {@code top} or {@code columns} is under 1
   * @throws IllegalStateException if the run kept no maps
   */
  public static String render(Generation run, int top, int columns) {
    if (top < 1 || columns < 1) {
      throw new IllegalArgumentException(
          "a table of the top %d in %d columns: both must be at least 1".formatted(top, columns));
    }
    return new AttentionTable(MappedRun.of(run), top, List.of(), columns).render();
  }

  /**
   * A header and one line per token: its label and position, then for each of the heads that differ
   * most from the average the key that the token read most in it. How far a head differs is what
   * its rows give to tokens more than the average's do, the first token left out: many heads rest
   * on it. A single head has a table of the three keys that each token read most.
   *
   * @param most how many heads, at least 1
   * @param columns as for {@link #render(Generation, int, int)}
   * @throws IllegalArgumentException if {@code most} or {@code columns} is under 1
   * @throws IllegalStateException if the run kept no maps
   */
  public static String renderHeads(Generation run, int most, int columns) {
    MappedRun mapped = MappedRun.of(run);
    int all = mapped.maps().layers().length * mapped.maps().heads().length;
    if (all == 1) {
      return render(run, 3, columns);
    }
    if (most < 1 || columns < 1) {
      throw new IllegalArgumentException(
          "a table of %d heads in %d columns: both must be at least 1".formatted(most, columns));
    }
    AttentionTable average = new AttentionTable(mapped, 1, List.of(), columns);
    return new AttentionTable(mapped, 1, average.different(most), columns).render();
  }

  private record Head(int layer, int head, double distance) {
    String name() {
      return layer + "." + head;
    }
  }

  /** The heads that differ most from the average, the farthest first. */
  private List<Head> different(int most) {
    AttentionMaps maps = run.maps();
    int[] layers = maps.layers();
    int[] numbers = maps.heads();
    double[] distances = new double[layers.length * numbers.length];
    for (int query = 0; query < run.tokens().size(); query++) {
      double[] mean = average(query);
      for (int i = 0; i < distances.length; i++) {
        float[] row = maps.row(layers[i / numbers.length], numbers[i % numbers.length], query);
        for (int key = 1; key < row.length; key++) {
          distances[i] += Math.max(0, row[key] - mean[key]);
        }
      }
    }
    List<Head> all = new ArrayList<>();
    for (int i = 0; i < distances.length; i++) {
      all.add(new Head(layers[i / numbers.length], numbers[i % numbers.length], distances[i]));
    }
    return all.stream()
        .sorted(Comparator.comparingDouble(head -> -head.distance))
        .limit(most)
        .toList();
  }

  private String render() {
    StringBuilder out = new StringBuilder();
    heading(out);
    for (int query = 0; query < run.tokens().size(); query++) {
      if (query > 0 && query == run.promptLength()) {
        out.append(TerminalText.fit("-- generated --", columns).stripTrailing()).append('\n');
      }
      row(query, out);
    }
    return out.toString();
  }

  private void heading(StringBuilder out) {
    int[] layers = run.maps().layers();
    if (!heads.isEmpty()) {
      int all = layers.length * run.maps().heads().length;
      print(
          out,
          "what each token reads most, in the %s that differ most"
              .formatted(
                  heads.size() == all
                      ? all + " heads"
                      : "%d of %d heads".formatted(heads.size(), all)));
      print(out, "from the average:");
      names(out);
      return;
    }
    int[] numbers = run.maps().heads();
    String title = "what each token reads most:";
    String which =
        layers.length == 1 && numbers.length == 1
            ? "head %d.%d".formatted(layers[0], numbers[0])
            : "average of %s, %s"
                .formatted(
                    MappedRun.numbered("layer", layers), MappedRun.numbered("head", numbers));
    boolean one = title.length() + 1 + which.length() <= columns;
    for (String line : one ? List.of(title + " " + which) : List.of(title, which)) {
      print(out, line);
    }
  }

  private void print(StringBuilder out, String line) {
    out.append(TerminalText.fit(line, columns).stripTrailing()).append('\n');
  }

  /** The heads' names, each above its column. */
  private void names(StringBuilder out) {
    StringBuilder line = new StringBuilder(" ".repeat(queryWidth()));
    int width = queryWidth() + 1 + WEIGHT_WIDTH;
    int onLine = 0;
    for (Head head : heads) {
      if (onLine == perLine) {
        print(out, line.toString());
        line = new StringBuilder(" ".repeat(queryWidth()));
        onLine = 0;
      }
      line.append("  ").append(TerminalText.fit("head " + head.name(), width));
      onLine++;
    }
    print(out, line.toString());
  }

  /** A key of a row, and what it has of it. */
  private record Read(int key, double weight) {}

  private List<Read> reads(int query) {
    List<Read> reads = new ArrayList<>();
    if (heads.isEmpty()) {
      double[] weights = average(query);
      most(weights).forEach(key -> reads.add(new Read(key, weights[key])));
    }
    for (Head head : heads) {
      float[] row = run.maps().row(head.layer, head.head, query);
      int best = 0;
      for (int key = 1; key < row.length; key++) {
        best = row[key] > row[best] ? key : best;
      }
      reads.add(new Read(best, row[best]));
    }
    return reads;
  }

  private void row(int query, StringBuilder out) {
    StringBuilder line = new StringBuilder(token(query));
    int onLine = 0;
    for (Read read : reads(query)) {
      if (onLine == perLine) {
        out.append(line.toString().stripTrailing()).append('\n');
        line = new StringBuilder(" ".repeat(queryWidth()));
        onLine = 0;
      }
      line.append("  ").append(token(read.key)).append(' ').append(number(read.weight));
      onLine++;
    }
    out.append(line.toString().stripTrailing()).append('\n');
  }

  private int queryWidth() {
    return labelWidth + 1 + positionWidth;
  }

  private String token(int position) {
    String number = Integer.toString(position);
    return TerminalText.fit(run.tokens().get(position).label(), labelWidth)
        + " ".repeat(1 + positionWidth - number.length())
        + number;
  }

  /** [query + 1], mean over layers and heads. */
  private double[] average(int query) {
    AttentionMaps maps = run.maps();
    int[] layers = maps.layers();
    int[] numbers = maps.heads();
    double[] mean = new double[query + 1];
    for (int layer : layers) {
      for (int head : numbers) {
        float[] row = maps.row(layer, head, query);
        for (int key = 0; key < row.length; key++) {
          mean[key] += row[key];
        }
      }
    }
    for (int key = 0; key < mean.length; key++) {
      mean[key] /= (double) layers.length * numbers.length;
    }
    return mean;
  }

  /** The keys of the {@code top} largest weights, largest first, earlier key first among equals. */
  private List<Integer> most(double[] weights) {
    List<Integer> best = new ArrayList<>();
    for (int key = 0; key < weights.length; key++) {
      int place = best.size();
      while (place > 0 && weights[best.get(place - 1)] < weights[key]) {
        place--;
      }
      if (place < top) {
        best.add(place, key);
        if (best.size() > top) {
          best.removeLast();
        }
      }
    }
    return best;
  }

  private static String number(double weight) {
    return weight < 0.0005 && weight > 0 ? "<0.001" : String.format(Locale.ROOT, "%6.3f", weight);
  }
}
