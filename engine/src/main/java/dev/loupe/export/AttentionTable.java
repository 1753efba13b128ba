package dev.loupe.export;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * For a terminal: what every token read most, averaged over the layers and heads of the run's maps.
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

  private AttentionTable(MappedRun run, int top, int columns) {
    this.run = run;
    this.top = Math.min(top, run.tokens().size());
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
    return new AttentionTable(MappedRun.of(run), top, columns).render();
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
    int[] heads = run.maps().heads();
    String title = "what each token reads most:";
    String which =
        layers.length == 1 && heads.length == 1
            ? "head %d.%d".formatted(layers[0], heads[0])
            : "average of %s, %s"
                .formatted(MappedRun.numbered("layer", layers), MappedRun.numbered("head", heads));
    boolean one = title.length() + 1 + which.length() <= columns;
    for (String line : one ? List.of(title + " " + which) : List.of(title, which)) {
      out.append(TerminalText.fit(line, columns).stripTrailing()).append('\n');
    }
  }

  private void row(int query, StringBuilder out) {
    double[] weights = average(query);
    StringBuilder line = new StringBuilder(token(query));
    int onLine = 0;
    for (int key : most(weights)) {
      if (onLine == perLine) {
        out.append(line.toString().stripTrailing()).append('\n');
        line = new StringBuilder(" ".repeat(queryWidth()));
        onLine = 0;
      }
      line.append("  ").append(token(key)).append(' ').append(number(weights[key]));
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
    int[] heads = maps.heads();
    double[] mean = new double[query + 1];
    for (int layer : layers) {
      for (int head : heads) {
        float[] row = maps.row(layer, head, query);
        for (int key = 0; key < row.length; key++) {
          mean[key] += row[key];
        }
      }
    }
    for (int key = 0; key < mean.length; key++) {
      mean[key] /= (double) layers.length * heads.length;
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
