package dev.loupe.export;

import com.google.gson.stream.JsonWriter;
import dev.loupe.generate.Token;
import dev.loupe.interpret.Comparison;
import dev.loupe.text.Count;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** A {@link Comparison} for a terminal, and as JSON. */
public final class ComparisonReport {
  private static final int HEADS = 8; // that are named

  private ComparisonReport() {}

  /**
   * Tables, no line longer than {@code columns}.
   *
   * @param changes what was changed, in words
   * @param top how many tokens are shown
   */
  public static String text(Comparison comparison, String changes, int top, int columns) {
    List<String> lines = new ArrayList<>();
    int tokens = comparison.tokens().size();
    lines.add("With " + changes + ", on " + (tokens == 1 ? "1 token" : tokens + " tokens") + ":");
    if (tokens > 1) {
      double before = comparison.meanBefore();
      double after = comparison.meanAfter();
      lines.add(
          String.format(
              Locale.ROOT,
              "logprob %+.3f a token, was %+.3f; perplexity %.2f, was %.2f",
              after,
              before,
              Math.exp(-after),
              Math.exp(-before)));
    }
    lines.add("");
    lines.addAll(tokens(comparison, top));
    if (!comparison.maps().isEmpty()) {
      lines.add("");
      lines.addAll(maps(comparison));
    }
    return lines.stream()
        .map(line -> TerminalText.fit(line, columns).stripTrailing() + "\n")
        .collect(Collectors.joining());
  }

  /** Those that change most, in the order of the text. */
  private static List<String> tokens(Comparison comparison, int top) {
    List<Integer> shown =
        IntStream.range(1, comparison.tokens().size())
            .boxed()
            .sorted(Comparator.comparingDouble(i -> -Math.abs(change(comparison, i))))
            .limit(top)
            .sorted()
            .toList();
    if (shown.isEmpty()) {
      return List.of();
    }
    List<String> lines = new ArrayList<>();
    int all = comparison.tokens().size() - 1;
    lines.add(
        shown.size() < all
            ? "%s of %d whose probability changes most:"
                .formatted(Count.of(shown.size(), "token"), all)
            : "Each token, given those before it:");
    lines.add("   at  token          logprob       was    change  divergence before it");
    for (int i : shown) {
      Token token = comparison.tokens().get(i);
      lines.add(
          String.format(
              Locale.ROOT,
              "%5d  %s  %+8.3f  %+8.3f  %+8.3f  %8.3f",
              i,
              TerminalText.fit(token.label(), 12),
              comparison.logprobs().get(i),
              token.logprob(),
              change(comparison, i),
              comparison.divergences().get(i - 1)));
    }
    return lines;
  }

  private static double change(Comparison comparison, int i) {
    return comparison.logprobs().get(i) - comparison.tokens().get(i).logprob();
  }

  private record Head(int layer, int head, double variation) {}

  private static List<String> maps(Comparison comparison) {
    List<Head> heads = new ArrayList<>();
    for (int layer = 0; layer < comparison.maps().size(); layer++) {
      List<Double> of = comparison.maps().get(layer);
      for (int head = 0; head < of.size(); head++) {
        heads.add(new Head(layer, head, of.get(head)));
      }
    }
    List<String> most =
        heads.stream()
            .filter(h -> h.variation > 5e-4)
            .sorted(Comparator.comparingDouble(h -> -h.variation))
            .limit(HEADS)
            .map(
                h -> String.format(Locale.ROOT, "%d.%d %.1f%%", h.layer, h.head, 100 * h.variation))
            .toList();
    return most.isEmpty()
        ? List.of("No head attends elsewhere.")
        : List.of(
            "Heads that attend elsewhere, by how much of it:", "  " + String.join("  ", most));
  }

  /** One object on one line, schema {@code loupe-compare/1}; what is not there is null. */
  public static String json(Comparison comparison, String changes) {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value("loupe-compare/1");
      json.name("model").value(comparison.model().source());
      json.name("backend").value(comparison.model().backend());
      json.name("changes").value(changes);
      number(json.name("mean_logprob_before"), comparison.meanBefore());
      number(json.name("mean_logprob_after"), comparison.meanAfter());
      json.name("tokens").beginArray();
      for (int i = 0; i < comparison.tokens().size(); i++) {
        Token token = comparison.tokens().get(i);
        json.beginObject();
        json.name("id").value(token.id());
        json.name("label").value(token.label());
        number(json.name("logprob_before"), token.logprob());
        number(json.name("logprob_after"), comparison.logprobs().get(i));
        json.name("divergence_after_it").value(comparison.divergences().get(i));
        json.endObject();
      }
      json.endArray();
      json.name("map_variation").beginArray();
      for (List<Double> layer : comparison.maps()) {
        json.beginArray();
        for (double variation : layer) {
          json.value(variation);
        }
        json.endArray();
      }
      json.endArray();
      json.endObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e); // a StringWriter has none
    }
    return out.toString();
  }

  private static void number(JsonWriter json, double value) throws IOException {
    if (Double.isNaN(value)) {
      json.nullValue();
    } else {
      json.value(value);
    }
  }
}
